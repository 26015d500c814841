package storetest

import (
	"errors"
	"testing"

	"github.com/holdfast-run/holdfast/session"
)

var checkPromises = []promise{
	{"a sound session has no findings", func(t *testing.T, w *world) {
		w.manySided("m1")
		w.sound("ses_1")
	}},
	findsDamage(LoseEvent), findsDamage(ChangeSession), findsDamage(ChangeRun), findsDamage(ChangeApproval), findsDamage(ChangeMessage),
}

func findsDamage(damage Damage) promise {
	return promise{"it is found when " + string(damage), func(t *testing.T, w *world) {
		w.manySided("m1")
		w.submit("ses_1", "m2")
		lease := w.claim("wrk_1")
		w.stream(lease)
		w.ask(lease, wanted{id: "c1", name: "delete", arguments: "{}", approval: "apr_1"})
		w.wait(lease, session.WaitApproval, nil)
		w.submit("ses_2", "m3")
		w.sound("ses_1")
		d, ok := w.Store.(Damager)
		if !ok {
			t.Skip("this backend cannot be damaged")
		}
		if err := d.Damage("ses_1", damage); errors.Is(err, errors.ErrUnsupported) {
			t.Skip("this backend cannot have this damage")
		} else if err != nil {
			t.Fatal(err)
		}
		findings, err := w.Check(w.ctx, "ses_1")
		if err != nil || len(findings) == 0 {
			t.Errorf("Check found %q, %v", findings, err)
		}
		if findings, err = w.Check(w.ctx, "ses_2"); err != nil || len(findings) != 0 {
			t.Errorf("Check found %q in a sound session, %v", findings, err)
		}
	}}
}
