//go:build !unix

package mcp

import "os/exec"

func own(*exec.Cmd) {}

// terminate does nothing: there is no signal to end in order.
func terminate(*exec.Cmd) {}

// kill ends the process. It may have ended.
func kill(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
