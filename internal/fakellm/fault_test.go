package fakellm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
)

func TestACutIsAnUnexpectedEOFAfterWhatWasSaid(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(fakellm.Reply(fakellm.Text("The answer is 4"), fakellm.Cut()))
		_, text, err := exchange(t, llm, wire, ask(wire, "hi", true))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("reading ended with %v", err)
		}
		if h := listen(t, wire, text); h.text != "The answer is 4" || h.ended || h.reason != "" {
			t.Errorf("heard %+v", h)
		}
		done, err := llm.WaitClosed(soon(t), 1)
		if err != nil || done.ClientLeft || done.PlayError != "" {
			t.Errorf("%v, record %+v", err, done)
		}
	})
}

func TestACutBeforeAnythingIsNoResponse(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		for _, streamed := range []bool{true, false} {
			llm.Script(fakellm.Reply(fakellm.Cut()))
			if response, err := send(t.Context(), llm, wire, ask(wire, "hi", streamed)); err == nil {
				response.Body.Close()
				t.Errorf("streamed %v: status %d", streamed, response.StatusCode)
			}
		}
	})
}

func TestAResetReachesTheClientAsOne(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		gate := make(chan struct{})
		llm.Script(fakellm.Reply(fakellm.Text("half"), fakellm.Wait(gate), fakellm.Reset()))
		response := open(t, llm, wire, ask(wire, "hi", true))
		readUntil(t, response.Body, "half")
		close(gate)
		if _, err := io.ReadAll(response.Body); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("reading ended with %v", err)
		}
		if done, err := llm.WaitClosed(soon(t), 1); err != nil || done.ClientLeft {
			t.Errorf("%v, record %+v", err, done)
		}
	})
}

func TestACleanEOFHasNoFinish(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(
			fakellm.Reply(fakellm.Text("The total is 12"), fakellm.CleanEOF()),
			fakellm.Reply(fakellm.CleanEOF()),
			fakellm.Reply(fakellm.Fragments(fakellm.Fragment{ID: "a", Name: "pay"}), fakellm.CleanEOF()),
		)
		h := listen(t, wire, stream(t, llm, wire))
		if h.text != "The total is 12" || h.ended || h.reason != "" {
			t.Errorf("heard %+v", h)
		}
		if text := stream(t, llm, wire); text != "" {
			t.Errorf("an empty stream is %q", text)
		}
		h = listen(t, wire, stream(t, llm, wire))
		if want := map[string]string{"pay": ""}; !maps.Equal(h.calls, want) || h.ended {
			t.Errorf("heard %+v", h)
		}
	})
}

func TestAnEOFInsideAFrameEndsInHalfAnObject(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(fakellm.Reply(fakellm.Text("The total"), fakellm.EOFInsideFrame()).Times(2))
		text := stream(t, llm, wire)
		last := text[strings.LastIndex(text, "data: "):]
		if !strings.HasPrefix(last, `data: {"`) || len(last) != len(`data: {"choi`) {
			t.Errorf("the stream ends in %q", last)
		}
		status, text, err := exchange(t, llm, wire, ask(wire, "hi", false))
		if status != 200 || err != nil || json.Valid([]byte(text)) || !strings.HasPrefix(text, "{") {
			t.Errorf("without a stream: %d, %v, %q", status, err, text)
		}
	})
}

func TestAHalfFrameCanBeTheFirstAndBeFollowedBySilence(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(fakellm.Reply(fakellm.HalfFrame(), fakellm.OpenGate("half"), fakellm.Stall()))
		ctx, leave := context.WithCancel(t.Context())
		response, err := send(ctx, llm, wire, ask(wire, "hi", true))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if err := llm.WaitGate(soon(t), "half"); err != nil {
			t.Fatal(err)
		}
		leave()
		if done, err := llm.WaitClosed(soon(t), 1); err != nil || !done.ClientLeft {
			t.Errorf("%v, record %+v", err, done)
		}
	})
}

// Each way to be silent ends only when the client leaves, and that is recorded.
func TestSilenceLastsUntilTheClientLeaves(t *testing.T) {
	silences := map[string]struct {
		steps []fakellm.Step
		head  bool   // a head comes before the silence
		until string // what can be read before it
	}{
		"black hole":          {[]fakellm.Step{fakellm.BlackHole()}, false, ""},
		"headers then stall":  {[]fakellm.Step{fakellm.Stall()}, true, ""},
		"text then stall":     {[]fakellm.Step{fakellm.Text("one", "two"), fakellm.Stall()}, true, "two"},
		"comments only":       {[]fakellm.Step{fakellm.PingEvery(time.Millisecond)}, true, ": ping\n\n: ping\n\n"},
		"long pause":          {[]fakellm.Step{fakellm.Headers(), fakellm.Pause(time.Hour)}, true, ""},
		"gate that stays":     {[]fakellm.Step{fakellm.Begin(), fakellm.WaitGate("never")}, true, "\n\n"},
		"stall after the end": {[]fakellm.Step{fakellm.Text("x"), fakellm.Finish{}, fakellm.Stall()}, true, "x"},
	}
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		n := 0
		for name, silence := range silences {
			n++
			llm.Script(fakellm.Reply(silence.steps...))
			ctx, leave := context.WithCancel(t.Context())
			got := make(chan *http.Response, 1)
			go func() {
				response, _ := send(ctx, llm, wire, ask(wire, name, true))
				got <- response
			}()
			if _, err := llm.WaitRequest(soon(t), n); err != nil {
				t.Fatal(err)
			}
			if silence.head {
				response := <-got
				if response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
					t.Errorf("%s: %d %v", name, response.StatusCode, response.Header)
				}
				if silence.until != "" {
					readUntil(t, response.Body, silence.until)
				}
				defer response.Body.Close()
			}
			if llm.OpenStreams() != 1 {
				t.Errorf("%s: %d streams are open", name, llm.OpenStreams())
			}
			leave()
			done, err := llm.WaitClosed(soon(t), n)
			if err != nil || !done.ClientLeft || done.ClosedAt.Before(done.At) {
				t.Errorf("%s: %v, record %+v", name, err, done)
			}
			if !silence.head && (done.Status != 0 || <-got != nil) {
				t.Errorf("%s: status %d", name, done.Status)
			}
		}
		if llm.OpenStreams() != 0 {
			t.Errorf("%d streams are open at the end", llm.OpenStreams())
		}
	})
}

func TestAStatusComesInTheProvidersShapeWithItsHeaders(t *testing.T) {
	kinds := map[fakellm.Wire]string{
		fakellm.Chat:      `{"error":{"message":`,
		fakellm.Responses: `{"error":{"message":`,
		fakellm.Messages:  `{"type":"error","error":{"type":"`,
	}
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		for _, code := range []int{400, 401, 403, 404, 408, 413, 429, 500, 503, 504, 529} {
			llm.Script(fakellm.Reply(fakellm.Status{Code: code, RetryAfter: "2", Header: http.Header{"x-should-retry": {"true"}}}))
			response := open(t, llm, wire, ask(wire, "hi", true))
			body, _ := io.ReadAll(response.Body)
			if response.StatusCode != code || !json.Valid(body) || !strings.HasPrefix(string(body), kinds[wire]) {
				t.Errorf("%d: status %d, body %s", code, response.StatusCode, body)
			}
			if response.Header.Get("Retry-After") != "2" || response.Header.Get("X-Should-Retry") != "true" {
				t.Errorf("%d: headers %v", code, response.Header)
			}
		}
		llm.Script(fakellm.Reply(fakellm.Status{Code: 502, Header: http.Header{"Content-Type": {"text/html"}}, Body: "<html>"}))
		response := open(t, llm, wire, ask(wire, "hi", false))
		body, _ := io.ReadAll(response.Body)
		if response.StatusCode != 502 || string(body) != "<html>" || response.Header.Get("Content-Type") != "text/html" {
			t.Errorf("status %d, %v, body %s", response.StatusCode, response.Header, body)
		}
		if done, err := llm.WaitClosed(soon(t), 12); err != nil || done.Status != 502 || done.ClientLeft {
			t.Errorf("%v, record %+v", err, done)
		}
	})
}

func TestAnErrorInsideTheStreamIsSaidInTheWordsOfTheWire(t *testing.T) {
	want := map[fakellm.Wire]string{
		fakellm.Chat:      "data: {\"error\":{\"message\":\"busy\",\"type\":\"server_error\",\"param\":null,\"code\":\"server_is_overloaded\"}}\n\n",
		fakellm.Responses: `{"type":"error","sequence_number":5,"error":{"type":"server_error","code":"server_is_overloaded","message":"busy","param":null}}`,
		fakellm.Messages:  "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}",
	}
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(
			fakellm.Reply(fakellm.Text("Hel"), fakellm.InBandError("overloaded_error", "busy")),
			fakellm.Reply(fakellm.InBandError("overloaded_error", "busy")),
			fakellm.Reply(fakellm.InBandError("overloaded_error", "busy")),
		)
		text := stream(t, llm, wire)
		if !strings.Contains(text, want[wire]) {
			t.Error(text)
		}
		if h := listen(t, wire, text); h.text != "Hel" || h.failure != "busy" || h.ended {
			t.Errorf("heard %+v", h)
		}
		if wire == fakellm.Responses && !strings.Contains(text, `"status":"failed","background":false,"error":{"code":"server_is_overloaded","message":"busy"}`) {
			t.Error(text)
		}
		if h := listen(t, wire, stream(t, llm, wire)); h.text != "" || h.failure != "busy" || h.ended {
			t.Errorf("before any delta: heard %+v", h)
		}
		if status, text, _ := exchange(t, llm, wire, ask(wire, "hi", false)); status != 529 || !strings.Contains(text, "busy") {
			t.Errorf("without a stream: %d %s", status, text)
		}
	})
}

func TestFragmentsComeExactlyAsScripted(t *testing.T) {
	both := map[string]string{"a": `{"t":"A"}`, "b": `{"t":"B"}`}
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(fakellm.Reply(fakellm.Text("now"), fakellm.Fragments(
			fakellm.Fragment{Index: 0, ID: "A", Name: "a"},
			fakellm.Fragment{Index: 1, ID: "B", Name: "b"},
			fakellm.Fragment{Index: 0, Args: `{"t":`},
			fakellm.Fragment{Index: 1, Args: `{"t":"B"`},
			fakellm.Fragment{Index: 0, Args: `"A"}`},
			fakellm.Fragment{Index: 1, Args: `}`},
		)))
		h := listen(t, wire, stream(t, llm, wire))
		if !maps.Equal(h.calls, both) || !h.ended {
			t.Errorf("interleaved: heard %+v", h)
		}

		oneIndex := fakellm.Fragments(
			fakellm.Fragment{Index: 0, ID: "A", Name: "a", Args: both["a"]},
			fakellm.Fragment{Index: 0, ID: "B", Name: "b", Args: both["b"]},
		)
		llm.Script(fakellm.Reply(oneIndex).Times(2))
		text := stream(t, llm, wire)
		counts := map[fakellm.Wire]string{
			fakellm.Chat:      `"tool_calls":[{"index":0,`,
			fakellm.Responses: `"type":"response.output_item.added"`,
			fakellm.Messages:  `"content_block_start","index":0,`,
		}
		if n := strings.Count(text, counts[wire]); n != 2 {
			t.Errorf("all index 0: %d calls in %s", n, text)
		}
		if strings.Contains(text, `"output_index":1`) {
			t.Errorf("all index 0: %s", text)
		}
		_, whole, _ := exchange(t, llm, wire, ask(wire, "hi", false))
		for _, id := range []string{`"A"`, `"B"`} {
			if !strings.Contains(whole, id) {
				t.Errorf("no call %s in %s", id, whole)
			}
		}

		llm.Script(fakellm.Reply(fakellm.Fragments(
			fakellm.Fragment{NoIndex: true, ID: "A", Name: "a", Args: `{"t":`},
			fakellm.Fragment{NoIndex: true, ID: "B", Name: "b", Args: both["b"]},
			fakellm.Fragment{NoIndex: true, ID: "A", Args: `"A"}`},
		), fakellm.CleanEOF()))
		text = stream(t, llm, wire)
		if wire == fakellm.Chat && (strings.Contains(text, `"tool_calls":[{"index"`) || strings.Count(text, `"tool_calls":[{"id":"A"`) != 2) {
			t.Errorf("no index: %s", text)
		}
		if strings.Contains(text, "output_index") || wire == fakellm.Messages && strings.Contains(text, `"index"`) {
			t.Errorf("no index: %s", text)
		}
	})
}

func TestArgumentsAreSentHoweverBrokenTheyAre(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		for _, args := range []string{
			`{"path":"/etc/hosts","content":"127.0.0.1 loc`, "", "{", "null", "[]", "{}}", `"str"`, `{"a":1}<|call|>`,
			`{"q":"\ud99c x"}`, `{"id":2512292042121000001,"x":1e2,"y":1.10}`, "é☃𝄞 \x00",
		} {
			for _, every := range []int{0, 1} {
				llm.Script(fakellm.Reply(fakellm.Call{ID: "c1", Name: "write", Args: args, Every: every}, fakellm.Finish{Reason: fakellm.Length}))
				if h := listen(t, wire, stream(t, llm, wire)); h.calls["write"] != args {
					t.Errorf("every %d: %q became %q", every, args, h.calls["write"])
				}
			}
			llm.Script(fakellm.Reply(fakellm.Call{ID: "c1", Name: "write", Args: args}))
			if _, text, err := exchange(t, llm, wire, ask(wire, "hi", false)); err != nil || !json.Valid([]byte(text)) {
				t.Errorf("%q, without a stream: %v, %s", args, err, text)
			}
		}
	})
}

func TestHalfASurrogatePairGoesOverTheWireAsItIs(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(fakellm.Reply(fakellm.EscapedText(`\ud83d`, `\ude00`)))
		text := stream(t, llm, wire)
		if !strings.Contains(text, `"\ud83d"`) || !strings.Contains(text, `"\ude00"`) {
			t.Error(text)
		}
		llm.Script(fakellm.Reply(fakellm.EscapedText("\xff")))
		if text := stream(t, llm, wire); !strings.Contains(text, "\"\xff\"") {
			t.Errorf("invalid UTF-8 did not pass: %q", text)
		}
	})
}

// The chunks of HTTP/1.1 show what was handed over by itself.
func TestByteByByteIsTheSameStreamInChunksOfOneByte(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(fakellm.Reply(fakellm.ByteByByte(), fakellm.Text("é☃𝄞"), fakellm.Call{ID: "c", Name: "f", Args: `{"k":"é"}`, Every: 1}))
		conn, err := net.Dial("tcp", strings.TrimPrefix(llm.URL(), "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		body := ask(wire, "hi", true)
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAnthropic-Version: x\r\nContent-Length: %d\r\n\r\n%s", paths[wire], len(body), body)
		all, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		_, chunks, _ := strings.Cut(string(all), "\r\n\r\n")
		var text strings.Builder
		for strings.HasPrefix(chunks, "1\r\n") {
			text.WriteByte(chunks[3])
			chunks = chunks[len("1\r\nx\r\n"):]
		}
		if chunks != "0\r\n\r\n" {
			t.Errorf("after chunks of one byte comes %.80q", chunks)
		}
		if h := listen(t, wire, text.String()); h.text != "é☃𝄞" || h.calls["f"] != `{"k":"é"}` || !h.ended {
			t.Errorf("heard %+v", h)
		}
	})
}

func TestALongLineHasItsExactLength(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		for _, n := range []int{65_535, 65_537, 1_048_577, 5_000_000} {
			llm.Script(fakellm.Reply(fakellm.Text(fakellm.Filler(n), "end"), fakellm.Call{Name: "f", Args: `{"s":"` + fakellm.Filler(n) + `"}`}))
			h := listen(t, wire, stream(t, llm, wire))
			if len(h.text) != n+3 || strings.Trim(h.text, "x") != "end" {
				t.Errorf("%d: %d bytes of text", n, len(h.text))
			}
			if got := len(h.calls["f"]); got != n+len(`{"s":""}`) {
				t.Errorf("%d: %d bytes of arguments", n, got)
			}
		}
	})
}

func TestALineOf300MBIsMadeWithoutHoldingIt(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	const size = 300 << 20
	llm.Script(fakellm.Reply(fakellm.Text(fakellm.Filler(size))))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	response := open(t, llm, fakellm.Chat, ask(fakellm.Chat, "hi", true))
	n, err := io.Copy(io.Discard, response.Body)
	runtime.ReadMemStats(&after)
	if err != nil || n < size || n > size+5000 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
		t.Errorf("%d MB were allocated", grown>>20)
	}
	if done, err := llm.WaitClosed(soon(t), 1); err != nil || done.BytesSent != n {
		t.Errorf("%v, record says %d bytes, the client %d", err, done.BytesSent, n)
	}
}

func TestAClientThatLeavesInTheMiddleOfALongLineIsSeen(t *testing.T) {
	llm := fakellm.Start(t, fakellm.Options{})
	llm.Script(fakellm.Reply(fakellm.Text(fakellm.Filler(300 << 20))))
	response := open(t, llm, fakellm.Chat, ask(fakellm.Chat, "hi", true))
	readUntil(t, response.Body, "xxxx")
	response.Body.Close()
	if done, err := llm.WaitClosed(soon(t), 1); err != nil || !done.ClientLeft {
		t.Errorf("%v, record %+v", err, done)
	}
}

func TestARawFrameIsTheWholeTruth(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(fakellm.Reply(fakellm.RawFrame("data:{\"odd\"\r\n\r\n: x\xff\n\n")).Times(2))
		if text := stream(t, llm, wire); text != "data:{\"odd\"\r\n\r\n: x\xff\n\n" {
			t.Errorf("the stream is %q", text)
		}
		if _, text, _ := exchange(t, llm, wire, ask(wire, "hi", false)); text != "data:{\"odd\"\r\n\r\n: x\xff\n\n" {
			t.Errorf("the body is %q", text)
		}
	})
}

func TestAFinishWithoutEndLacksOnlyTheMark(t *testing.T) {
	marks := map[fakellm.Wire]string{fakellm.Chat: "[DONE]", fakellm.Responses: "response.completed", fakellm.Messages: "message_stop"}
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(fakellm.Reply(fakellm.Text("x"), fakellm.Finish{NoEnd: true}))
		text := stream(t, llm, wire)
		if strings.Contains(text, marks[wire]) {
			t.Error(text)
		}
		if h := listen(t, wire, text); wire != fakellm.Responses && h.reason == "" {
			t.Errorf("heard %+v", h)
		}
	})
}

func TestPacedTextTakesItsTime(t *testing.T) {
	eachWire(t, func(t *testing.T, wire fakellm.Wire, llm *fakellm.Server) {
		llm.Script(fakellm.Reply(fakellm.Paced(20*time.Millisecond, "tick ", "tick ", "tick ")))
		start := time.Now()
		h := listen(t, wire, stream(t, llm, wire))
		if took := time.Since(start); h.text != "tick tick tick " || took < 40*time.Millisecond {
			t.Errorf("%q in %v", h.text, took)
		}
	})
}
