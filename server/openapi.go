package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/server/aisdk"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// routeOpenAPI serves the document of all routes. Those that huma does not
// serve are described here.
func (s *Server) routeOpenAPI() error {
	const path = "/v1/openapi.json"
	doc := s.api.OpenAPI()
	for _, op := range s.streamOperations() {
		doc.AddOperation(op)
	}
	doc.AddOperation(&huma.Operation{
		OperationID: "openapi", Method: http.MethodGet, Path: path, Summary: "This document",
		Responses: map[string]*huma.Response{"200": {
			Description: "OpenAPI 3.1", Content: map[string]*huma.MediaType{"application/json": {Schema: &huma.Schema{Type: huma.TypeObject}}},
		}, "default": s.problemResponse()},
	})
	schemas := doc.Components.Schemas.Map()
	// huma's own errors never leave as they are.
	delete(schemas, "ErrorModel")
	delete(schemas, "ErrorDetail")
	settle(doc)
	describeEnums(schemas)
	raw, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("write the OpenAPI document: %w", err)
	}
	s.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-cache")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(raw))
	})
	return nil
}

// streamOperations describes the routes that hold a connection or send bytes.
func (s *Server) streamOperations() []*huma.Operation {
	id := &huma.Schema{Type: huma.TypeString, Pattern: "^[A-Za-z0-9_-]{1,128}$"}
	inPath := func(name, doc string, schema *huma.Schema) *huma.Param {
		return &huma.Param{Name: name, In: "path", Required: true, Description: doc, Schema: schema}
	}
	inQuery := func(name, doc string, schema *huma.Schema) *huma.Param {
		return &huma.Param{Name: name, In: "query", Description: doc, Schema: schema}
	}
	cursor := &huma.Schema{Type: huma.TypeString, Pattern: "^(0|[1-9][0-9]{0,15})$"}
	one, most := 1.0, float64(feed.PageMost)
	bytesOfAnyType := map[string]*huma.MediaType{"*/*": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}
	profile := &huma.Param{Name: aisdk.ProfileHeader, In: "header", Description: "what the client takes: safe (default), v5 or v7", Schema: &huma.Schema{Type: huma.TypeString}}
	chatProblem := s.problemResponse()
	chatProblem.Content["text/plain"] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Description: "the detail, unless the request accepts JSON"}}
	chatStream := &huma.Response{Description: "a UI message stream", Content: map[string]*huma.MediaType{
		eventStream: {Schema: &huma.Schema{Type: huma.TypeString, Description: "a block with data for each chunk"}},
	}}
	return []*huma.Operation{
		{
			OperationID: "readEvents", Method: http.MethodGet, Path: "/v1/sessions/{id}/events",
			Summary: "The log after a cursor: an event stream, a page or a long poll, as Accept and wait say",
			Parameters: []*huma.Param{
				inPath("id", "the session", id),
				inQuery("after", "the cursor: the last seq seen; default: 0", cursor),
				{Name: "Last-Event-ID", In: "header", Description: "the cursor; it wins over after", Schema: cursor},
				inQuery("limit", "how many frames a page has; default: 1000", &huma.Schema{Type: huma.TypeInteger, Minimum: &one, Maximum: &most}),
				inQuery("wait", "how long a page waits for a frame, such as 30s; at most 60s", &huma.Schema{Type: huma.TypeString}),
			},
			Responses: map[string]*huma.Response{
				"200": {Description: "the log after the cursor", Content: map[string]*huma.MediaType{
					eventStream:        {Schema: &huma.Schema{Type: huma.TypeString, Description: "a block for each frame, with id and data"}},
					"application/json": {Schema: s.schema(reflect.TypeFor[api.EventPage]())},
				}},
				"default": s.problemResponse(),
			},
		},
		{
			OperationID: "getBlob", Method: http.MethodGet, Path: "/v1/sessions/{id}/blobs/{hash}", Summary: "A large value",
			Parameters: []*huma.Param{
				inPath("id", "the session", id),
				inPath("hash", "the SHA-256 of the content", &huma.Schema{Type: huma.TypeString, Pattern: "^[0-9a-f]{64}$"}),
			},
			Responses: map[string]*huma.Response{
				"200":     {Description: "the bytes, with their media type", Content: bytesOfAnyType},
				"206":     {Description: "a range of the bytes", Content: bytesOfAnyType},
				"304":     {Description: "the client has it"},
				"default": s.problemResponse(),
			},
		},
		{
			OperationID: "connect", Method: http.MethodGet, Path: "/v1/connect",
			Summary: "A WebSocket to follow many sessions and the list of them; it only reads",
			Responses: map[string]*huma.Response{
				"101":     {Description: "the connection is a WebSocket now: see protocol/PROTOCOL.md"},
				"default": s.problemResponse(),
			},
		},
		{
			OperationID: "postChat", Method: http.MethodPost, Path: "/api/chat",
			Summary:    "For the AI SDK: say something, edit, regenerate, or decide an approval, and follow what comes of it",
			Parameters: []*huma.Param{profile},
			RequestBody: &huma.RequestBody{Required: true, Description: "what useChat sends; what else is in it is left alone", Content: map[string]*huma.MediaType{
				"application/json": {Schema: &huma.Schema{Type: huma.TypeObject}},
			}},
			Responses: map[string]*huma.Response{"200": chatStream, "default": chatProblem},
		},
		{
			OperationID: "resumeChat", Method: http.MethodGet, Path: "/api/chat/{id}/stream",
			Summary: "For the AI SDK: follow the answer that is being written, from its beginning",
			Parameters: []*huma.Param{
				inPath("id", "the chat, or the stream in an X-Workflow-Run-Id", &huma.Schema{Type: huma.TypeString, Pattern: "^[A-Za-z0-9_.-]{1,300}$"}),
				inQuery("startIndex", "leave out that many chunks; below 0: all but that many; then a stream that is over is told, too", &huma.Schema{Type: huma.TypeInteger}),
				profile,
			},
			Responses: map[string]*huma.Response{"200": chatStream, "204": {Description: "nothing is being written"}, "default": chatProblem},
		},
		{
			OperationID: "stopChat", Method: http.MethodPost, Path: "/api/chat/{id}/stop",
			Summary:    "For the AI SDK: cancel the run that writes an answer; nothing to cancel is fine",
			Parameters: []*huma.Param{inPath("id", "the chat", id)},
			RequestBody: &huma.RequestBody{Description: "what is meant, as the page has it: assistantMessage and activeStreamId", Content: map[string]*huma.MediaType{
				"application/json": {Schema: &huma.Schema{Type: huma.TypeObject}},
			}},
			Responses: map[string]*huma.Response{
				"200":     {Description: "no run writes now", Content: map[string]*huma.MediaType{"application/json": {Schema: s.schema(reflect.TypeFor[api.ChatStopped]())}}},
				"default": chatProblem,
			},
		},
	}
}

func (s *Server) schema(t reflect.Type) *huma.Schema {
	return s.api.OpenAPI().Components.Schemas.Schema(t, true, t.Name())
}

// settle lets answers have fields that the document does not know, since fields
// are added, and keeps requests closed. Lists are never null.
func settle(doc *huma.OpenAPI) {
	schemas := doc.Components.Schemas
	requests := map[*huma.Schema]bool{}
	var walk func(s *huma.Schema)
	walk = func(s *huma.Schema) {
		for s != nil && s.Ref != "" {
			s = schemas.SchemaFromRef(s.Ref)
		}
		if s == nil || requests[s] {
			return
		}
		requests[s] = true
		walk(s.Items)
		for _, member := range s.Properties {
			walk(member)
		}
	}
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			if op.RequestBody != nil {
				walk(op.RequestBody.Content["application/json"].Schema)
			}
			for _, param := range op.Parameters {
				fillLists(param.Schema)
			}
		}
	}
	for _, s := range schemas.Map() {
		if !requests[s] && s.AdditionalProperties == false {
			s.AdditionalProperties = nil
		}
		fillLists(s)
	}
}

// fillLists says that lists are never null: an absent one is empty.
func fillLists(s *huma.Schema) {
	if s.Type == huma.TypeArray {
		s.Nullable = false
	}
	for _, member := range s.Properties {
		fillLists(member)
	}
	if values, ok := s.AdditionalProperties.(*huma.Schema); ok {
		fillLists(values)
	}
}

// describeEnums says which values the fields have whose Go types are names for
// texts: the domain's types carry no tags of a document.
func describeEnums(schemas map[string]*huma.Schema) {
	runStatus := []any{session.Queued, session.Running, session.Waiting, session.Completed, session.Failed, session.Cancelled}
	effects := []any{session.ReadOnly, session.Idempotent, session.Unsafe}
	for _, e := range []struct {
		schema, field string
		values        []any
	}{
		{"Run", "status", runStatus},
		{"Run", "waitingReason", []any{session.WaitApproval, session.WaitToolOutcome, session.WaitChildRun, session.WaitCallback, session.WaitRetry, session.WaitWorker}},
		{"Session", "status", append([]any{"idle"}, runStatus...)},
		{"SessionRow", "status", append([]any{"idle"}, runStatus...)},
		{"Message", "role", []any{session.RoleUser, session.RoleAssistant}},
		{"Message", "status", []any{session.MessageStreaming, session.MessageWhole, session.MessageCut}},
		{"Part", "type", []any{session.PartText, session.PartReasoning, session.PartTool, session.PartFile, session.PartSource, session.PartData, session.PartStep}},
		{"Part", "state", []any{session.PartStreaming, session.PartFailed}},
		{"ToolCall", "status", []any{session.CallWriting, session.CallCalled, session.CallStarted, session.CallDeferred, session.CallCompleted, session.CallFailed, session.CallDenied, session.CallCancelled, session.CallUnknown}},
		{"ToolCall", "effects", effects},
		{"Tool", "effects", effects},
		{"Approval", "effects", effects},
		{"Approval", "status", []any{session.StatusPending, session.StatusApproved, session.StatusDenied, session.StatusExpired, session.StatusVoided}},
		{"InboxItem", "mode", []any{session.Enqueue, session.Interrupt, session.Rollback, session.Steer}},
	} {
		schemas[e.schema].Properties[e.field].Enum = e.values
	}
}
