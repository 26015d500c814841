package model_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
)

// recorder is a constructor that keeps what it was given.
type recorder struct {
	got    model.ProviderConfig
	script *modeltest.Script
	name   string
}

func (r *recorder) build(cfg model.ProviderConfig) (model.Provider, error) {
	r.got = cfg
	return r, nil
}

func (r *recorder) Model(name string) (model.Model, error) {
	r.name = name
	return r.script, nil
}

func constructors(r *recorder) map[string]model.Constructor {
	return map[string]model.Constructor{
		model.TypeOpenAI: r.build, model.TypeOpenAICompatible: r.build, model.TypeAnthropic: r.build, model.TypeDemo: r.build,
	}
}

func TestAReferenceIsAProviderAndItsNameOfTheModel(t *testing.T) {
	r := &recorder{script: modeltest.NewScript(modeltest.Reply(modeltest.Text("hi")))}
	reg, err := model.NewRegistry(map[string]model.ProviderConfig{"router": {Type: model.TypeDemo}}, constructors(r))
	if err != nil {
		t.Fatal(err)
	}
	m, err := reg.Model("router/meta/llama-3:free")
	if err != nil || r.name != "meta/llama-3:free" {
		t.Fatalf("asked for %q, %v", r.name, err)
	}
	if a := modeltest.Collect(t, m.Stream(t.Context(), model.Request{})); a.Text != "hi" {
		t.Errorf("got %v", a)
	}
}

func TestAnUnknownProviderIsAnErrorThatNamesTheKnown(t *testing.T) {
	reg, err := model.NewRegistry(map[string]model.ProviderConfig{
		"local": {Type: model.TypeDemo}, "demo": {Type: model.TypeDemo},
	}, constructors(&recorder{}))
	if err != nil {
		t.Fatal(err)
	}
	for ref, want := range map[string]string{
		"openai/gpt-5": `no provider "openai", only demo, local`,
		"gpt-5":        `want "provider/name", with a provider of demo, local`,
		"demo/":        `want "provider/name"`,
		"":             `want "provider/name"`,
	} {
		if _, err := reg.Model(ref); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", ref, err, want)
		}
	}
	if got := fmt.Sprint(reg.Providers()); got != "[demo local]" {
		t.Errorf("providers %s", got)
	}
}

func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		provider string
		cfg      model.ProviderConfig
		want     string
	}{
		"unknown type":     {"x", model.ProviderConfig{Type: "openay"}, `type "openay" is not one of anthropic, demo, openai, openai-compatible`},
		"no base URL":      {"x", model.ProviderConfig{Type: model.TypeOpenAICompatible}, "baseURL is missing"},
		"not a URL":        {"x", model.ProviderConfig{Type: model.TypeOpenAI, BaseURL: "localhost:1234"}, "baseURL is not an http or https URL"},
		"a key in the URL": {"x", model.ProviderConfig{Type: model.TypeOpenAI, BaseURL: "https://h/v1?key=sk-secret"}, "keys belong into"},
		"a password":       {"x", model.ProviderConfig{Type: model.TypeOpenAI, BaseURL: "https://u:sk-secret@h/v1"}, "keys belong into"},
		"a slash":          {"a/b", model.ProviderConfig{Type: model.TypeDemo}, "no slash"},
		"no name":          {"", model.ProviderConfig{Type: model.TypeDemo}, "not empty"},
	} {
		_, err := model.NewRegistry(map[string]model.ProviderConfig{c.provider: c.cfg}, constructors(&recorder{}))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestTheKeyComesFromWhereTheConfigurationSays(t *testing.T) {
	t.Setenv("MY_KEY", " sk-mine\n")
	t.Setenv("OPENAI_API_KEY", "sk-openai")
	t.Setenv("ANTHROPIC_API_KEY", "")
	for name, c := range map[string]struct {
		cfg  model.ProviderConfig
		key  string
		fail string
	}{
		"itself":                        {model.ProviderConfig{Type: model.TypeOpenAI, APIKey: "sk-given", APIKeyEnv: "MY_KEY"}, "sk-given", ""},
		"a variable":                    {model.ProviderConfig{Type: model.TypeOpenAI, APIKeyEnv: "MY_KEY"}, "sk-mine", ""},
		"a variable that is not there":  {model.ProviderConfig{Type: model.TypeOpenAI, APIKeyEnv: "NO_KEY"}, "", "environment variable NO_KEY is not set"},
		"the usual variable":            {model.ProviderConfig{Type: model.TypeOpenAI}, "sk-openai", ""},
		"the usual variable, not there": {model.ProviderConfig{Type: model.TypeAnthropic}, "", "environment variable ANTHROPIC_API_KEY is not set"},
		"headers":                       {model.ProviderConfig{Type: model.TypeAnthropic, Headers: map[string]string{"authorization": "Bearer x"}}, "", ""},
		"none, for another server":      {model.ProviderConfig{Type: model.TypeOpenAI, BaseURL: "http://localhost:1/v1"}, "", ""},
		"none, for a compatible server": {model.ProviderConfig{Type: model.TypeOpenAICompatible, BaseURL: "http://localhost:1/v1"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			reg, err := model.NewRegistry(map[string]model.ProviderConfig{"p": c.cfg}, constructors(r))
			if err != nil {
				t.Fatalf("a missing key must not stop the others: %v", err)
			}
			_, err = reg.Model("p/m")
			if c.fail == "" && (err != nil || r.got.APIKey != c.key) {
				t.Errorf("key %q, %v; want %q", r.got.APIKey, err, c.key)
			}
			if c.fail != "" && (err == nil || !strings.Contains(err.Error(), c.fail)) {
				t.Errorf("got %v, want %q", err, c.fail)
			}
		})
	}
}

func TestPrintingAConfigurationShowsNoSecret(t *testing.T) {
	cfg := model.ProviderConfig{
		Type: model.TypeOpenAI, BaseURL: "https://user:sk-secret@example.com/v1?key=sk-secret", APIKey: "sk-secret",
		Headers: map[string]string{"X-Key": "sk-secret"},
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("start", "provider", cfg, "providers", map[string]any{"p": fmt.Sprintf("%+v", cfg)})
	for _, printed := range []string{
		cfg.String(), fmt.Sprintf("%v %+v %#v %s %v", cfg, cfg, cfg, cfg, &cfg), fmt.Sprint([]model.ProviderConfig{cfg}), log.String(),
	} {
		if strings.Contains(printed, "sk-secret") || !strings.Contains(printed, "example.com") {
			t.Errorf("printed %s", printed)
		}
	}
}

func TestAConfigurationReadsFromJSON(t *testing.T) {
	var cfg model.ProviderConfig
	err := json.Unmarshal([]byte(`{"type":"openai-compatible","baseURL":"http://localhost:11434/v1","apiKeyEnv":"K","headers":{"A":"b"},"idleTimeout":1000000000}`), &cfg)
	if err != nil || cfg.Type != model.TypeOpenAICompatible || cfg.APIKeyEnv != "K" || cfg.Headers["A"] != "b" || cfg.IdleTimeout != time.Second {
		t.Errorf("got %v, %v", cfg, err)
	}
}

func TestModelsOfARegistryAreWatched(t *testing.T) {
	for configured, want := range map[time.Duration]time.Duration{0: model.DefaultIdleTimeout, time.Second: time.Second, -1: 0} {
		synctest.Test(t, func(t *testing.T) {
			r := &recorder{script: modeltest.NewScript(modeltest.Reply(modeltest.Pause(time.Hour), modeltest.Text("late")))}
			reg, err := model.NewRegistry(map[string]model.ProviderConfig{"p": {Type: model.TypeDemo, IdleTimeout: configured}}, constructors(r))
			if err != nil {
				t.Fatal(err)
			}
			m, err := reg.Model("p/m")
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			a := modeltest.Collect(t, m.Stream(t.Context(), model.Request{}))
			if want == 0 && (a.Err != nil || a.Text != "late") {
				t.Errorf("no limit: got %v", a)
			}
			if want != 0 && (a.Code() != model.CodeStalled || time.Since(began) != want) {
				t.Errorf("limit %s: got %v after %s", want, a.Err, time.Since(began))
			}
		})
	}
}

func TestAProgramAddsAProviderOfItsOwn(t *testing.T) {
	reg, err := model.NewRegistry(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reg.Model("mine/m"); err == nil || !strings.Contains(err.Error(), "only none") {
		t.Errorf("got %v", err)
	}
	script := modeltest.NewScript(modeltest.Reply(modeltest.Text("hi")))
	if err := errors.Join(reg.Add("mine", script)); err != nil {
		t.Fatal(err)
	}
	m, err := reg.Model("mine/m")
	if err != nil {
		t.Fatal(err)
	}
	if a := modeltest.Collect(t, m.Stream(t.Context(), model.Request{})); a.Text != "hi" {
		t.Errorf("got %v", a)
	}
	if reg.Add("mine", script) == nil || reg.Add("a/b", script) == nil {
		t.Error("a taken or impossible name is accepted")
	}
}
