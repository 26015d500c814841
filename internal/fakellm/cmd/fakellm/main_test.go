package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestTheCommandPrintsItsURLServesAndEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-listen", "127.0.0.1:0"}, in, io.Discard) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	url := strings.TrimSpace(line)

	post := func(path, body string) string {
		t.Helper()
		response, err := http.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	post("/_script", `{"turns":[{"steps":[{"text":["scripted ","from outside"]}]}]}`)
	if got := post("/v1/responses", `{"model":"m","input":"hi"}`); !strings.Contains(got, "scripted from outside") {
		t.Errorf("the answer is %s", got)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("run: %v", err)
	}
	if _, err := http.Get(url + "/v1/models"); err == nil {
		t.Error("the server still answers")
	}
}

func TestAnAddressInUseIsAnError(t *testing.T) {
	out, in := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, nil, in, io.Discard) }()
	line, _ := bufio.NewReader(out).ReadString('\n')
	taken := strings.TrimPrefix(strings.TrimSpace(line), "http://")
	if err := run(ctx, []string{"-listen", taken}, io.Discard, io.Discard); err == nil {
		t.Error("two servers share one address")
	}
	stop()
	<-ended
}
