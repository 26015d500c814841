//go:build unix

package mcp

import (
	"os/exec"
	"syscall"
)

// terminate asks the process and all that it started to end.
func terminate(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }

// kill ends the process and all that it started. There may be none left.
func kill(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
