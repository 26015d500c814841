package demo

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/model"
)

// play does what the person asked for. The first scene that fits is played.
func (s *stage) play() error {
	switch sc := s.scene; {
	case strings.HasPrefix(sc.ask, "check: "):
		return s.check(strings.TrimPrefix(sc.ask, "check: "))
	case sc.asks("count"):
		return s.count()
	case sc.asks("subagent", "delegate", "share it out"):
		return s.share()
	case sc.asks("delete", "remove", "clean up"):
		return s.delete()
	case sc.asks("mail", "letter"):
		return s.mail()
	case sc.asks("trip", "travel", "itinerary", "holiday", "vacation"):
		return s.trip()
	case sc.asks("long task", "progress", "report", "research", "analyse", "analyze"):
		return s.longTask()
	case sc.asks("flaky", "unreliable"):
		return s.flaky()
	case sc.asks("retry", "fail", "overload"):
		return s.retry()
	case sc.asks("break", "error"):
		return s.fatal()
	case sc.asks("markdown", "code", "table"):
		return s.markdown()
	case sc.asks("think", "why", "reason"):
		return s.reason()
	case sc.asks("weather"):
		return s.weather()
	case sc.asks("time", "clock", "date"):
		return s.clock()
	case expression.MatchString(sc.ask):
		return s.calculate()
	}
	return s.introduce()
}

const label = "_(This is the demo model: a script inside Holdfast, not an AI.)_\n\n"

// missing says which tool a scene would need.
func (s *stage) missing(names ...string) error {
	return s.say(label + "I would show this with the tools " + strings.Join(names, ", ") + ", but this agent does not have them all.")
}

var number = regexp.MustCompile(`\d+`)

// count counts, slowly if asked: a long answer to refresh, kill and resume.
func (s *stage) count() error {
	n := 20
	if found := number.FindString(s.scene.ask); found != "" {
		n, _ = strconv.Atoi(found)
	}
	n = min(max(n, 1), 10_000)
	pause := s.pause / 4
	if s.scene.asks("slow") {
		pause = s.pause
	}
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "%d ", i)
	}
	return s.speak(model.TextChunk, strings.TrimSuffix(b.String(), " "), pause)
}

// helper is the demo agent's subagent.
const helper = "helper"

// share gives three tasks to subagents, one of which asks the person.
func (s *stage) share() error {
	if !s.scene.has(helper) {
		return s.missing(helper)
	}
	if s.scene.turns > 0 {
		var b strings.Builder
		b.WriteString("My subagents have answered:\n\n")
		for _, r := range s.scene.results {
			fmt.Fprintf(&b, "- %s\n", oneLine(strings.TrimPrefix(r.text, label)))
		}
		return s.say(b.String())
	}
	if err := s.say(label + "These do not depend on each other. I give each to a subagent, with a conversation of its own."); err != nil {
		return err
	}
	for _, task := range []string{"What is the weather in Oslo?", "Run a long task", "Delete the old reports"} {
		if err := s.call(helper, arguments("task", task)); err != nil {
			return err
		}
	}
	return nil
}

// trip plans in three steps: look things up side by side, keep the plan, tell it.
func (s *stage) trip() error {
	if !s.scene.has(weatherTool, "calculator", "notes_write") {
		return s.missing(weatherTool, "calculator", "notes_write")
	}
	place := destination(s.scene.ask)
	switch s.scene.turns {
	case 0:
		if err := s.think("The person wants a trip to " + place + ". I need the weather there and at home, and what it will cost. These do not depend on each other, so I ask for them together."); err != nil {
			return err
		}
		if err := s.say(label + "Let me look up a few things for **" + place + "** first."); err != nil {
			return err
		}
		for _, city := range []string{place, "Home"} {
			if err := s.call(weatherTool, arguments("city", city)); err != nil {
				return err
			}
		}
		return s.call("calculator", arguments("expression", "3 * 120 + 2 * 85 + 60"))
	case 1:
		if err := s.say("I have what I need. I will keep the plan in your notes."); err != nil {
			return err
		}
		plan := "Trip to " + place + "\nDay 1: arrive, old town\nDay 2: museum and market\nDay 3: day hike\n"
		return s.call("notes_write", arguments("name", "trip-"+slug(place)+".md", "text", plan))
	}
	weather := s.scene.about(weatherTool, place)
	cost, _ := s.scene.last("calculator")
	kept := "I kept it in your notes."
	if note, ok := s.scene.last("notes_write"); ok && note.failed {
		kept = "I could not keep it in your notes: " + note.text
	}
	return s.say(fmt.Sprintf(`## Three days in %s

| Day | Morning | Afternoon | Evening |
|-----|---------|-----------|---------|
| 1 | Arrive, check in | Walk through the old town | Dinner by the river |
| 2 | The museum | The market | A concert |
| 3 | Day hike | Swim, if it is warm | Pack |

**Cost:** about %s, for three nights, two dinners and a train ticket.
**Weather:** %s

%s Ask me to *delete the old reports* to see an approval.`, place, oneLine(cost.text), oneLine(weather.text), kept))
}

// delete deletes notes, which a person must approve.
func (s *stage) delete() error {
	if !s.scene.has("notes_list", "notes_write", "notes_delete") {
		return s.missing("notes_list", "notes_write", "notes_delete")
	}
	deleted, done := s.scene.last("notes_delete")
	_, listed := s.scene.last("notes_list")
	_, wrote := s.scene.last("notes_write")
	switch {
	case done && deleted.failed:
		return s.say("I did not delete it. I was told: " + oneLine(deleted.text))
	case done:
		return s.say("Done: the old report is deleted, and nothing else was touched.")
	case !listed:
		if err := s.say(label + "Let me see which reports there are."); err != nil {
			return err
		}
		return s.call("notes_list", "{}")
	case !wrote && !strings.Contains(s.lastText("notes_list"), oldReport):
		if err := s.say("There is no old report yet, so I will write one that we can delete."); err != nil {
			return err
		}
		return s.call("notes_write", arguments("name", oldReport, "text", "Quarterly report 2019. Superseded.\n"))
	}
	if err := s.say("`" + oldReport + "` is old. Deleting cannot be undone, so **you have to approve it**. You can close this page and decide tomorrow: nothing waits in memory."); err != nil {
		return err
	}
	return s.call("notes_delete", arguments("name", oldReport))
}

const (
	oldReport   = "report-2019.md"
	weatherTool = "weather_sample"
)

func (s *stage) lastText(tool string) string {
	r, _ := s.scene.last(tool)
	return r.text
}

// longTask runs a tool that takes a while and reports its progress.
func (s *stage) longTask() error {
	if !s.scene.has("long_task") {
		return s.missing("long_task")
	}
	r, done := s.scene.last("long_task")
	if !done {
		seconds := 12
		if found := number.FindString(s.scene.ask); found != "" {
			seconds, _ = strconv.Atoi(found)
		}
		if err := s.say(label + "This takes a while. Watch its progress, refresh the page, or stop it."); err != nil {
			return err
		}
		return s.call("long_task", arguments("seconds", min(max(seconds, 1), 300)))
	}
	if r.failed {
		return s.say("The task did not finish. I was told: " + oneLine(r.text))
	}
	return s.say("The task is finished. It said: " + oneLine(r.text))
}

// mail sends a letter, which a person must approve.
func (s *stage) mail() error {
	if !s.scene.has("mail_sample") {
		return s.missing("mail_sample")
	}
	r, done := s.scene.last("mail_sample")
	switch {
	case !done:
		if err := s.say(label + "I have written a letter. **You have to approve it** before it goes."); err != nil {
			return err
		}
		return s.call("mail_sample", arguments("to", "ada@example.com", "text", "The engine works."))
	case r.failed:
		return s.say("The letter was not sent. I was told: " + oneLine(r.text))
	}
	return s.say("I was told: " + oneLine(r.text) + " Nothing really was sent, as this is a sample. " +
		"But between your approval and this sentence the call was made once, whatever else happened: a refresh, a crash, or the same approval from another tab. " +
		"The answer went on in the same message, behind the question, and the model was not asked for its beginning again.")
}

// flaky calls a tool that fails the first time, and tries again.
func (s *stage) flaky() error {
	if !s.scene.has("flaky") {
		return s.missing("flaky")
	}
	r, done := s.scene.last("flaky")
	switch {
	case !done:
		if err := s.say(label + "This tool is unreliable. Let me try it."); err != nil {
			return err
		}
		return s.call("flaky", arguments("task", "fetch the numbers"))
	case r.failed && s.scene.turns < 3:
		if err := s.say("It failed (" + oneLine(r.text) + "). I will try once more."); err != nil {
			return err
		}
		return s.call("flaky", arguments("task", "fetch the numbers"))
	case r.failed:
		return s.say("It failed again. I give up: " + oneLine(r.text))
	}
	return s.say("The second try worked: " + oneLine(r.text))
}

// retry says half an answer and fails, the first time; the next attempt replaces it.
func (s *stage) retry() error {
	if s.provider.failOnce(s.scene) {
		if err := s.say(label + "I am about to break off in the middle of this sen"); err != nil {
			return err
		}
		return &model.Error{
			Code: model.CodeOverloaded, Retryable: true, RetryAfter: 4 * time.Second,
			Message: "the demo model plays an overloaded provider; it works the second time",
		}
	}
	return s.say(label + "This is the second attempt. What the first one had said is gone from the answer, here and after a reload; the log still has it. Nothing was doubled.")
}

// fatal fails for good.
func (s *stage) fatal() error {
	if err := s.say(label + "This answer ends in an error that no retry can mend."); err != nil {
		return err
	}
	return &model.Error{Code: model.CodeInvalidRequest, Message: "the demo model was asked to break, and did"}
}

// reason thinks aloud before it answers.
func (s *stage) reason() error {
	if err := s.think("The person asks for a reason. The honest one is that this is a script. What I can show is that reasoning streams apart from the answer, survives a refresh, and is kept with it."); err != nil {
		return err
	}
	return s.say(label + "Because a run belongs to the server's log and not to your browser tab. The tab shows it; closing the tab ends the showing, not the run.")
}

// markdown shows what an answer can look like.
func (s *stage) markdown() error {
	return s.say(label + "### A bit of everything\n\n" +
		"Some *emphasis*, some **weight**, some `code`, and a list:\n\n" +
		"1. a run outlives its page\n2. a cursor outlives its connection\n3. an approval outlives its process\n\n" +
		"```go\n// Next says what comes next, given the log.\nfor {\n\tnext := agent.Next(fold(log))\n\tlog = append(log, do(next)...)\n}\n```\n\n" +
		"| lifetime | ends |\n|---|---|\n| connection | at any time |\n| run | once |\n\n> A disconnect never cancels; only cancel cancels.\n")
}

// weather looks up two places at once.
func (s *stage) weather() error {
	if !s.scene.has(weatherTool) {
		return s.missing(weatherTool)
	}
	if s.scene.turns == 0 {
		if err := s.say(label + "I will ask for two places at once."); err != nil {
			return err
		}
		for _, city := range []string{destination(s.scene.ask), "Reykjavik"} {
			if err := s.call(weatherTool, arguments("city", city)); err != nil {
				return err
			}
		}
		return nil
	}
	var lines []string
	for _, r := range s.scene.results {
		lines = append(lines, "- "+oneLine(r.text))
	}
	return s.say("Here is what I found (sample data, not a forecast):\n\n" + strings.Join(lines, "\n"))
}

func (s *stage) clock() error {
	if !s.scene.has("clock") {
		return s.missing("clock")
	}
	if r, done := s.scene.last("clock"); done {
		return s.say("The clock says: " + oneLine(r.text))
	}
	if err := s.say(label + "Let me look at the clock."); err != nil {
		return err
	}
	return s.call("clock", arguments("zone", "UTC"))
}

var expression = regexp.MustCompile(`\d\s*[-+*/^]\s*[\d(]`)

var formula = regexp.MustCompile(`[\d(][\d\s.()+*/^-]*[\d)]`)

func (s *stage) calculate() error {
	if !s.scene.has("calculator") {
		return s.missing("calculator")
	}
	if r, done := s.scene.last("calculator"); done {
		return s.say("That is " + oneLine(r.text) + ".")
	}
	if err := s.say(label + "I am a script and cannot count, but I have a calculator."); err != nil {
		return err
	}
	return s.call("calculator", arguments("expression", strings.TrimSpace(formula.FindString(s.scene.ask))))
}

// introduce says what there is to try.
func (s *stage) introduce() error {
	return s.say(label + "You said: “" + quote(s.scene.ask) + "”\n\n" +
		"I can show you what Holdfast does. Ask me to\n\n" +
		"- **count to 500 slowly**, then refresh the page, close it, or kill the server in the middle\n" +
		"- **plan a trip to Lisbon**: several tools at once, in several steps\n" +
		"- **delete the old reports**: a call that waits for your approval\n" +
		"- **delegate to subagents**: three of them side by side, one of which asks you\n" +
		"- **run a long task**: progress you can leave and come back to\n" +
		"- **show a retry**: an attempt that fails and is replaced\n" +
		"- **try the flaky tool**, **think**, **show markdown**, **what is 12 * 7**, **what time is it**\n\n" +
		"To talk to a real model, name one in `holdfast.yaml`.\n")
}

var toPlace = regexp.MustCompile(`(?i)\b(?:to|in|for)\s+(\p{Lu}[\p{L}'-]*(?:\s+\p{Lu}[\p{L}'-]*)*)`)

// destination is the place that the person named.
func destination(ask string) string {
	if m := toPlace.FindStringSubmatch(ask); m != nil && m[1] != "I" {
		return m[1]
	}
	return "Lisbon"
}

func slug(place string) string {
	return strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(strings.ToLower(place), "-"), "-")
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func quote(ask string) string {
	runes := []rune(oneLine(ask))
	if len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return string(runes)
}
