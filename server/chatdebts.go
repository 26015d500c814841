package server

import (
	"sync"
	"time"
)

// debts are the pages that may hold an answer which is not whole, so that a
// resume after its end is a replay and not "nothing is active". They are a hint of one process
// about its own connections: when they are lost, a page has to load again.
//
//   - A page that loaded the history while an answer was being written has it without that answer.
//   - A page whose stream broke off has the beginning.
//
// A replay that was taken to its end pays one of them; a history with the whole
// answer pays all, but for pages that loaded just before the end and are about to resume.
type debts struct {
	mu  sync.Mutex
	all map[string][]debt // by message; guarded by mu
}

type debt struct {
	reason debtReason
	at     time.Time
}

type debtReason int

const (
	byHistory debtReason = iota
	byCut
)

const (
	debtTime     = time.Hour        // a phone comes back after that, and loads the page again
	historyTime  = 15 * time.Second // from loading a page to its resume
	maxDebtors   = 20_000           // messages with debts
	debtsOfOne   = 32               // pages of one message
	debtsToSweep = 64               // messages looked at when one is added
)

// owe notes that a page has a message not whole.
func (d *debts) owe(message string, reason debtReason) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[string][]debt{}
	}
	now, looked := time.Now(), 0
	for other, owed := range d.all { // in no order: in time each is looked at
		if looked++; looked > debtsToSweep {
			break
		}
		if now.Sub(owed[len(owed)-1].at) > debtTime || len(d.all) >= maxDebtors {
			delete(d.all, other)
		}
	}
	owed := d.all[message]
	if len(owed) >= debtsOfOne {
		owed = owed[1:]
	}
	d.all[message] = append(owed, debt{reason, now})
}

// owes says whether some page has the message not whole.
func (d *debts) owes(message string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	owed := d.all[message]
	return len(owed) > 0 && time.Since(owed[len(owed)-1].at) <= debtTime
}

// paid notes that a replay which began then was taken to its end.
func (d *debts) paid(message string, began time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	owed := d.all[message]
	pay := -1
	for i, one := range owed {
		if !one.at.After(began) && (pay < 0 || one.reason == byHistory && owed[pay].reason != byHistory) {
			pay = i
		}
	}
	if pay >= 0 {
		d.keep(message, append(owed[:pay:pay], owed[pay+1:]...))
	}
}

// served notes that a history went out with the whole message.
func (d *debts) served(message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	owed := d.all[message]
	if len(owed) == 0 {
		return
	}
	var kept []debt
	for _, one := range owed {
		if one.reason == byHistory && time.Since(one.at) < historyTime {
			kept = append(kept, one)
		}
	}
	d.keep(message, kept)
}

func (d *debts) keep(message string, owed []debt) {
	if len(owed) == 0 {
		delete(d.all, message)
	} else {
		d.all[message] = owed
	}
}
