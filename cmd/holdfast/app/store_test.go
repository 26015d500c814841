package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

func TestTheDoctorLooksAtAPostgreSQLDatabase(t *testing.T) {
	url := pgtest.New(t)
	c := StoreConfig{URL: url}
	open, bell, err := c.parts(t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil || bell == nil {
		t.Fatal(err)
	}
	var out, log strings.Builder
	a := App{Stdout: &out, Stderr: &log}
	if code := Run(t.Context(), a, []string{"doctor", "--store", url}); code != exitFailed || !strings.Contains(log.String(), "start it once") {
		t.Errorf("of an empty database it says %d: %s", code, log.String())
	}
	s, err := open(context.Background(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Append(t.Context(), "ses_1", session.Create{Tenant: "t", Owner: "o"}.Decide); err != nil {
		t.Fatal(err)
	}
	if code := Run(t.Context(), a, []string{"doctor", "--store", url}); code != exitOK || !strings.Contains(out.String(), "1 session checked") {
		t.Errorf("it says %d: %s%s", code, out.String(), log.String())
	}
}

func TestNoPasswordIsToldOfADatabase(t *testing.T) {
	c := StoreConfig{URL: "postgres://ann:sesame@127.0.0.1:1/things"}
	if got := c.where("data"); got != "the PostgreSQL database things at 127.0.0.1:1" {
		t.Errorf("it is called %q", got)
	}
	var out, log strings.Builder
	code := Run(t.Context(), App{Stdout: &out, Stderr: &log}, []string{"serve", "--listen", "127.0.0.1:0", "--data", t.TempDir(), "--store", c.URL})
	if code != exitFailed || !strings.Contains(log.String(), "--store") || strings.Contains(out.String()+log.String(), "sesame") {
		t.Errorf("serve says %d: %s%s", code, out.String(), log.String())
	}
	for _, wrong := range []string{"postgres://ann:sesame@h:port/things", "mysql://ann:sesame@h/things"} {
		_, err := StoreConfig{URL: wrong}.place()
		if err == nil || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s is refused with %v", wrong, err)
		}
	}
}
