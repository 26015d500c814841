// Package faults holds what has really gone wrong in systems of this kind, each
// fault as a black-box test of the real binary: real processes, real sockets, a
// real disk, a model provider that misbehaves, SIGKILL and SIGSTOP.
//
// A test's name begins with the fault's id in the field catalogue (RG-01, CA-05
// …). After every scenario the oracles of oracles_test.go are asked: they catch
// much that a scenario does not look for.
package faults
