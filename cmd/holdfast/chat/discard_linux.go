package chat

import (
	"os"

	"golang.org/x/sys/unix"
)

// discardInput drops what the terminal holds of typed input.
func discardInput(tty *os.File) {
	_ = unix.IoctlSetInt(int(tty.Fd()), unix.TCFLSH, unix.TCIFLUSH) // without it only lines typed ahead stay
}
