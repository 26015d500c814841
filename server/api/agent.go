package api

import "github.com/holdfast-run/holdfast/session"

// AgentList is what can be asked.
type AgentList struct {
	Items   []Agent `json:"items"`
	Default string  `json:"default" doc:"the agent of a session that names none"`
}

// Agent is one agent, as a client may see it.
type Agent struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Model       string `json:"model"`
	Tools       []Tool `json:"tools"`
}

// Tool is one thing that an agent can do.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Effects     session.Effects `json:"effects"`
	Approval    string          `json:"approval" enum:"never,always,unless_read_only,rule" doc:"when a person must agree first"`
}

// Health is the answer of /healthz and /readyz.
type Health struct {
	Status string `json:"status" enum:"ok,ready"`
}
