// Package fakellm is a model provider that plays a script over a real socket.
//
// It speaks three wires, streamed and whole: OpenAI chat completions
// (POST /v1/chat/completions), OpenAI responses (POST /v1/responses) and
// Anthropic messages (POST /v1/messages). A test says what the model does next,
// in steps that are the same on every wire, and then looks at what arrived:
//
//	llm := fakellm.Start(t, fakellm.Options{})
//	llm.Script(
//		fakellm.Reply(fakellm.Text("The answer is 4"), fakellm.Cut()),
//		fakellm.Reply(fakellm.Text("The answer is 42.")),
//	)
//	// ... point the program at llm.URL() ...
//	second, err := llm.WaitRequest(ctx, 2)
//
// Requests meet turns in the order of both: each request takes the first
// queued turn that matches it, and Options.Default answers when none does.
//
// Unless Options.Lenient is set, the provider is as strict as the strictest
// real one: a history in which a tool call lacks its result, a body with half
// an emoji, or a tool schema that is not an object is refused with status 400
// and the name of the broken rule. No turn is used up by a refused request.
//
// A test that runs the provider in another process (cmd/fakellm) scripts it
// over HTTP: see control.go for the routes.
package fakellm
