package app

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/tool"
	httptool "github.com/holdfast-run/holdfast/tool/http"
)

// checkHTTP says what is wrong with the tools that post to an endpoint.
func (b *builder) checkHTTP() {
	for _, name := range slices.Sorted(maps.Keys(b.config.HTTP)) {
		at := func(path string) string { return strings.TrimSuffix("http."+name+"."+path, ".") }
		b.config.HTTP[name].Check(name, func(path, format string, args ...any) {
			b.fault(at(path), format, args...)
			b.brokenHTTP = append(b.brokenHTTP, name)
		})
		if slices.Contains(b.ownTools(), name) {
			b.fault(at(""), "there is another tool %q, which is part of Holdfast", name)
		}
	}
}

// makeHTTP makes a tool that posts to an endpoint.
func (b *builder) makeHTTP(name string, c httptool.Config) (tool.Tool, error) {
	if slices.Contains(b.brokenHTTP, name) {
		return told{tool.Spec{Name: name}}, nil
	}
	b.callbacks.wanted = b.callbacks.wanted || c.Async != nil
	return httptool.New(name, c, httptool.Options{Callback: b.callbacks.url, Version: buildVersion()})
}

// told stands for a tool whose faults were told: nothing is ever run with it.
type told struct{ spec tool.Spec }

func (t told) Spec() tool.Spec { return t.spec }

func (told) Call(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{}, tool.ErrUnknownTool
}

// check says what is wrong with it.
func (s ServerConfig) check(wrong func(path, format string, args ...any)) {
	if s.PublicURL == "" {
		return
	}
	u, err := url.Parse(s.PublicURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		wrong("server.publicUrl", "a public URL is a scheme, a host and perhaps a path, such as https://agents.example.com")
	}
}

// hosts are the names under which the server is reached.
func (s ServerConfig) hosts() []string {
	u, err := url.Parse(s.PublicURL)
	if err != nil || u.Hostname() == "" {
		return s.AllowedHosts
	}
	return append(slices.Clone(s.AllowedHosts), u.Host)
}
