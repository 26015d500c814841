package builtin

import (
	"context"
	"time"
	_ "time/tzdata" // the zones, for machines that have none installed

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

type clockInput struct {
	Zone string `json:"zone,omitempty" jsonschema:"IANA time zone such as Europe/Oslo. Default: UTC"`
}

// Clock is the tool clock: the present time in a named zone. now is where it
// has the time from; nil means time.Now.
func Clock(now func() time.Time) tool.Tool {
	if now == nil {
		now = time.Now
	}
	return tool.New("clock", "Tells the current date, time and weekday in a time zone.",
		func(_ context.Context, in clockInput, _ tool.Call) (string, error) {
			zone, err := time.LoadLocation(in.Zone) // "" is UTC
			if err != nil || in.Zone == "Local" {
				return "", tool.Errorf("unknown_zone", "There is no time zone %q. Use an IANA name such as Europe/Oslo, America/New_York or UTC.", session.TrimText(in.Zone, 100))
			}
			return now().In(zone).Format("Monday, 2 January 2006, 15:04:05 MST (2006-01-02T15:04:05Z07:00)"), nil
		}, tool.WithEffects(session.ReadOnly), tool.WithTimeout(5*time.Second))
}
