package mcp

import (
	"os/exec"
	"syscall"
)

// own makes the process the leader of a group, and ends it with its parent.
func own(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
