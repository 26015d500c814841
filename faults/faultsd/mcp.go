package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/holdfast-run/holdfast/tool"
	"github.com/holdfast-run/holdfast/tool/mcp"
)

// serveMCP is an MCP server with the same tools, whose ledger is the same. It
// writes its process id to the file PIDS, and is deaf to every wish to end.
func serveMCP() {
	signal.Ignore(syscall.SIGTERM)
	pids, err := os.OpenFile(os.Getenv("PIDS"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(pids, os.Getpid())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "faults", Version: "1"}, nil)
	for name, hints := range map[string]*sdk.ToolAnnotations{
		"look": {ReadOnlyHint: true}, "put": {IdempotentHint: true}, "charge": {},
	} {
		made := act(name)
		s.AddTool(&sdk.Tool{Name: name, Annotations: hints, InputSchema: made.Spec().Parameters},
			func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				key, _ := req.Params.Meta[mcp.KeyMeta].(string)
				res, err := made.Call(ctx, tool.Call{Arguments: req.Params.Arguments, IdempotencyKey: key})
				var said sdk.CallToolResult
				if err != nil {
					said.SetError(err)
				} else {
					said.Content = []sdk.Content{&sdk.TextContent{Text: string(res.Value)}}
				}
				return &said, nil
			})
	}
	s.AddTool(&sdk.Tool{Name: "picture", Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true}, InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.ImageContent{MIMEType: "image/png", Data: []byte("a picture")}}}, nil
		})
	_ = s.Run(context.Background(), &sdk.StdioTransport{})
	select {}
}
