package storetest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// A child process writes and says on its standard output what it was told and
// what was acknowledged; the test kills it and looks at what is left:
//
//	seen ses_1 17 4f2a…   OnCommit told of the event at seq 17, with this hash
//	ack ses_1 17          an Append that ended at seq 17 was acknowledged
//	blob ses_1 ab12…      a PutBlob was acknowledged
//	deleting ses_1        Delete was called
//	deleted ses_1         … and acknowledged

// CrashSessions is how many sessions a child of [Crash] writes to at once.
const CrashSessions = 5

// Crash kills a process that writes to a store, again and again, and looks at
// what is left each time. start makes the command that calls [CrashChild] with
// the arguments, open opens the store as the next process would.
func Crash(t *testing.T, rounds int, start func(args ...string) *exec.Cmd, open func(t *testing.T) store.Store) {
	seed := rand.Uint64()
	if s := os.Getenv("HOLDFAST_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("HOLDFAST_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var acknowledged int
	for round := range rounds {
		told := crash(t, start(strconv.Itoa(round), strconv.FormatUint(rng.Uint64(), 10)), rng)
		acknowledged += len(told.acked)
		verifyCrash(t, open(t), told)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
	t.Logf("%d rounds, %d times a session had acknowledged events", rounds, acknowledged)
	if acknowledged < rounds {
		t.Errorf("only %d sessions had acknowledged events: the test has shown little", acknowledged)
	}
	s := open(t)
	for _, row := range allSessions(t, s) {
		noFindings(t, s, row.ID)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func noFindings(t *testing.T, s store.Store, id string) {
	t.Helper()
	findings, err := s.Check(context.Background(), id)
	if err != nil || len(findings) > 0 {
		t.Errorf("check session %s: %q, %v", id, findings, err)
	}
}

// told is what a child said before it was killed.
type survivor struct {
	seen     map[string]map[int64]string // hashes by session and seq
	acked    map[string]int64            // the last acknowledged seq, by session
	blobs    map[string][]string
	deleting map[string]bool
	deleted  map[string]bool
}

// crash runs a child until it has said a random number of lines, and kills it.
func crash(t *testing.T, cmd *exec.Cmd, rng *rand.Rand) *survivor {
	t.Helper()
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := rng.IntN(400)
	if rng.IntN(10) == 0 {
		lines = rng.IntN(4) // while it opens, or at its first write
	}
	told := &survivor{
		seen: map[string]map[int64]string{}, acked: map[string]int64{}, blobs: map[string][]string{},
		deleting: map[string]bool{}, deleted: map[string]bool{},
	}
	in := bufio.NewReader(out)
	for n := 0; ; n++ {
		if n == lines {
			_ = cmd.Process.Kill()
		}
		line, err := in.ReadString('\n')
		if err != nil { // a line that was cut short was not said
			break
		}
		if err := told.listen(strings.Fields(line)); err != nil {
			t.Fatalf("the child said %q: %v", line, err)
		}
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.Exited() {
		t.Fatalf("the child ended by itself: %v", err)
	}
	return told
}

func (t *survivor) listen(words []string) error {
	if len(words) < 2 {
		return errors.New("too short")
	}
	id := words[1]
	switch words[0] {
	case "opening":
	case "seen":
		seq, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return err
		}
		if t.seen[id] == nil {
			t.seen[id] = map[int64]string{}
		}
		t.seen[id][seq] = words[3]
	case "ack":
		seq, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return err
		}
		t.acked[id] = max(t.acked[id], seq)
	case "blob":
		t.blobs[id] = append(t.blobs[id], words[2])
	case "deleting":
		t.deleting[id] = true
	case "deleted":
		t.deleted[id] = true
	default:
		return errors.New("an error")
	}
	return nil
}

func verifyCrash(t *testing.T, s store.Store, told *survivor) {
	t.Helper()
	defer s.Close()
	for id, seen := range told.seen {
		head, err := s.Head(context.Background(), id)
		gone := errors.Is(err, store.ErrNotFound)
		switch {
		case told.deleted[id] && !gone:
			t.Errorf("session %s was deleted and is there", id)
		case gone && !told.deleting[id]:
			t.Errorf("session %s is gone", id)
		case err != nil && !gone:
			t.Errorf("session %s: %v", id, err)
		case gone:
		default:
			verifyLog(t, s, id, head, seen, told)
		}
	}
}

func verifyLog(t *testing.T, s store.Store, id string, head int64, seen map[int64]string, told *survivor) {
	t.Helper()
	if head < told.acked[id] {
		t.Errorf("session %s ends at seq %d and seq %d was acknowledged", id, head, told.acked[id])
	}
	frames, err := WholeLog(s, id)
	if err != nil {
		t.Errorf("read: %v", err)
	}
	var last int64
	for _, f := range frames {
		last = f.To
		if hash, ok := seen[f.From]; ok && f.From == f.To && !bytes.HasPrefix(f.JSON, []byte(`{"type":"folded"`)) && hash != hashOf(f.JSON) {
			t.Errorf("session %s has another event at seq %d than was seen", id, f.From)
		}
	}
	for seq := range seen {
		if seq > last {
			t.Errorf("session %s ends at seq %d and seq %d was seen", id, last, seq)
		}
	}
	for _, hash := range told.blobs[id] {
		_, content, err := s.Blob(context.Background(), id, hash)
		if err != nil {
			t.Errorf("session %s: an acknowledged blob: %v", id, err)
			continue
		}
		raw, err := io.ReadAll(content)
		content.Close()
		if sum := sha256.Sum256(raw); err != nil || hex.EncodeToString(sum[:]) != hash {
			t.Errorf("session %s: the blob %s has another content, %v", id, hash, err)
		}
	}
	noFindings(t, s, id)
}

func hashOf(line []byte) string {
	h := fnv.New64a()
	h.Write(line)
	return strconv.FormatUint(h.Sum64(), 16)
}

func allSessions(t *testing.T, s store.Store) []store.SessionRow {
	t.Helper()
	var all []store.SessionRow
	for cursor := ""; ; {
		page, err := s.Sessions(t.Context(), store.SessionQuery{Tenant: "t", Owner: "o", Cursor: cursor, Limit: 200})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page.Items...)
		if cursor = page.Next; cursor == "" {
			return all
		}
	}
}

// CrashChild writes to a store until it is killed. Its sessions are of this round only.
func CrashChild(open func(opts store.Options) (store.Store, error), args []string) int {
	round, seed := args[0], args[1]
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		panic(err)
	}
	speak("opening " + round)
	s, err := open(store.Options{OnCommit: speakCommit})
	if err != nil {
		speak("error " + err.Error())
		return 1
	}
	var wg sync.WaitGroup
	for i := range CrashSessions {
		wg.Go(func() {
			c := &crashWriter{s: s, rng: rand.New(rand.NewPCG(n, uint64(i))), prefix: fmt.Sprintf("%s_%d", round, i)}
			for life := 0; ; life++ {
				if err := c.live(life); err != nil {
					speak("error " + err.Error())
					os.Exit(1)
				}
			}
		})
	}
	wg.Go(func() {
		for {
			if _, err := s.Fold(context.Background(), time.Now().Add(time.Hour)); err != nil {
				speak("error fold " + err.Error())
				os.Exit(1)
			}
		}
	})
	wg.Wait()
	return 0
}

func speak(line string) { _, _ = os.Stdout.WriteString(line + "\n") }

func speakCommit(c store.Commit) {
	var b strings.Builder
	for _, f := range c.Frames {
		fmt.Fprintf(&b, "seen %s %d %s\n", c.Session, f.From, hashOf(f.JSON))
	}
	_, _ = os.Stdout.WriteString(b.String())
}

// crashWriter writes to one session after the other.
type crashWriter struct {
	s      store.Store
	rng    *rand.Rand
	prefix string
}

// live is the life of one session: some runs, each with deltas, sometimes an
// approval, a blob or a cancel, and sometimes a deletion at the end.
func (c *crashWriter) live(life int) error {
	id := fmt.Sprintf("ses_%s_%d", c.prefix, life)
	for n := range 1 + c.rng.IntN(3) {
		name := fmt.Sprintf("%s_%d_%d", c.prefix, life, n)
		if err := c.run(id, name); err != nil {
			return err
		}
	}
	if c.rng.IntN(3) > 0 {
		return nil
	}
	speak("deleting " + id)
	if err := c.s.Delete(context.Background(), id); err != nil {
		return err
	}
	speak("deleted " + id)
	return nil
}

func (c *crashWriter) run(id, name string) error {
	run := "run_" + name
	claim := &session.Claim{Run: run, Worker: "wrk_1", At: time.Now()}
	lease := store.Lease{Session: id, Run: run, Fence: 1}
	decides := []session.Decide{Submit("msg_"+name, "run_"+name).Decide, claim.Decide}
	for range c.rng.IntN(20) {
		decides = append(decides, Say(lease, 1+c.rng.IntN(20), strings.Repeat("token ", c.rng.IntN(20))))
	}
	if c.rng.IntN(2) == 0 {
		decides = append(decides, crashAsk(lease, "apr_"+name))
	}
	if c.rng.IntN(4) == 0 {
		decides = append(decides, session.Cancel{Run: run, By: "o", At: time.Now(), Grace: time.Minute}.Decide)
	}
	decides = append(decides, End(lease))
	for _, decide := range decides {
		a, err := c.s.Append(context.Background(), id, decide)
		if err != nil {
			return err
		}
		speak(fmt.Sprintf("ack %s %d", id, a.Last))
	}
	if c.rng.IntN(2) == 0 {
		content := strings.Repeat("content ", c.rng.IntN(10000))
		blob, err := c.s.PutBlob(context.Background(), id, "text/plain", strings.NewReader(content))
		if err != nil {
			return err
		}
		speak("blob " + id + " " + blob.Hash)
	}
	return nil
}

// crashAsk is a worker's append of an approval.
func crashAsk(lease store.Lease, id string) session.Decide {
	return session.Carry(lease.Run, lease.Fence, func(_ *session.State, run *session.Run) ([]session.Event, error) {
		return []session.Event{{Step: 1, Attempt: 1, Data: session.ApprovalRequested{Approval: session.Approval{
			ID: id, Session: lease.Session, Run: run.ID, Message: run.Message, Call: "call_1", Name: "delete",
		}}}}, nil
	})
}
