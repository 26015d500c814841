//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package chat

import (
	"os"

	"golang.org/x/sys/unix"
)

// discardInput drops what the terminal holds of typed input.
func discardInput(tty *os.File) {
	_ = unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCFLUSH, unix.TCIFLUSH) // without it only lines typed ahead stay
}
