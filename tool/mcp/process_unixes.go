//go:build unix && !linux

package mcp

import (
	"os/exec"
	"syscall"
)

// own makes the process the leader of a group. When its parent dies its input ends.
func own(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
