package builtin

import (
	"errors"
	"io"
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/holdfast-run/holdfast/session"
)

// page is what a reader sees of an HTML document.
type page struct {
	title string
	text  string
	cut   bool // there was more than fits
}

// readHTML makes plain text of at most about limit bytes out of HTML: paragraphs
// on lines of their own, headings and list items marked, links as [text](address)
// with the address made absolute by base.
func readHTML(document string, base *url.URL, limit int) page {
	r := &htmlReader{base: base, limit: limit}
	tokens := html.NewTokenizer(strings.NewReader(document))
	tokens.SetMaxBuf(limit + 1)
	for {
		kind := tokens.Next()
		if kind == html.ErrorToken {
			r.cut = r.cut || !errors.Is(tokens.Err(), io.EOF)
			break
		}
		if r.text.Len() > limit {
			r.cut = true
			break
		}
		r.token(kind, tokens.Token())
	}
	text := strings.TrimSpace(r.text.String())
	return page{strings.Join(strings.Fields(r.title.String()), " "), session.TrimText(text, limit), r.cut || len(text) > limit}
}

type htmlReader struct {
	base  *url.URL
	limit int
	text  strings.Builder
	title strings.Builder
	cut   bool

	hidden  atom.Atom // the element whose content is being skipped, 0 if none
	inTitle bool
	pre     int
	link    string // of the a element that is open
	space   bool   // white space is due before the next text
	parted  bool   // the same, but only inside the open link
	lines   int    // line ends at the end of text
}

func (r *htmlReader) token(kind html.TokenType, t html.Token) {
	if r.hidden != 0 {
		if kind == html.EndTagToken && t.DataAtom == r.hidden {
			r.hidden = 0
		}
		return
	}
	switch kind {
	case html.TextToken:
		if r.inTitle {
			r.title.WriteString(session.TrimText(t.Data, max(0, 1000-r.title.Len())))
		} else {
			r.write(t.Data)
		}
	case html.StartTagToken, html.SelfClosingTagToken:
		r.start(t)
	case html.EndTagToken:
		r.end(t)
	}
}

func (r *htmlReader) start(t html.Token) {
	switch t.DataAtom {
	case atom.Script, atom.Style, atom.Noscript, atom.Template, atom.Svg, atom.Iframe, atom.Object, atom.Canvas:
		if t.Type == html.StartTagToken {
			r.hidden = t.DataAtom
		}
	case atom.Title:
		r.inTitle = true
	case atom.Br:
		r.newline(r.lines + 1)
	case atom.Hr:
		r.newline(2)
	case atom.Li:
		r.newline(1)
		r.mark("- ")
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		r.newline(2)
		r.mark(strings.Repeat("#", int(t.Data[1]-'0')) + " ")
	case atom.Td, atom.Th:
		r.space = true
	case atom.Pre:
		r.newline(2)
		r.pre++
	case atom.A:
		r.openLink(t)
	default:
		r.newline(blockLines(t.DataAtom))
	}
}

func (r *htmlReader) end(t html.Token) {
	switch t.DataAtom {
	case atom.Title:
		r.inTitle = false
	case atom.Pre:
		r.pre = max(0, r.pre-1)
		r.newline(2)
	case atom.A:
		r.closeLink()
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		r.newline(2)
	default:
		r.newline(blockLines(t.DataAtom))
	}
}

// blockLines is how many line ends set an element apart.
func blockLines(a atom.Atom) int {
	switch a {
	case atom.P, atom.Table, atom.Ul, atom.Ol, atom.Dl, atom.Blockquote, atom.Section, atom.Article, atom.Header, atom.Footer, atom.Main, atom.Nav, atom.Aside, atom.Figure, atom.Form:
		return 2
	case atom.Div, atom.Tr, atom.Dt, atom.Dd, atom.Li, atom.Option, atom.Figcaption, atom.Summary, atom.Details:
		return 1
	}
	return 0
}

func (r *htmlReader) openLink(t html.Token) {
	r.closeLink()
	for _, a := range t.Attr {
		if a.Key != "href" || len(a.Val) > maxURL {
			continue
		}
		u, err := r.base.Parse(strings.TrimSpace(a.Val))
		if err != nil || checkURL(u) != nil || u.Scheme == r.base.Scheme && u.Host == r.base.Host && u.Path == r.base.Path && u.Fragment != "" {
			return // a place on this page, a script, a mail address
		}
		if r.space {
			r.gap()
		}
		r.mark("[")
		r.link = u.String()
	}
}

func (r *htmlReader) closeLink() {
	if r.link != "" {
		space := r.space
		r.mark("](" + r.link + ")")
		r.link, r.space, r.parted = "", space, false
	}
}

// write adds text, its white space collapsed unless it is preformatted.
func (r *htmlReader) write(s string) {
	if r.pre > 0 {
		r.mark(s)
		return
	}
	words := strings.Fields(s)
	if len(words) == 0 {
		r.space = r.space || s != ""
		return
	}
	if strings.TrimLeft(s, " \t\r\n\f") != s {
		r.space = true
	}
	for i, word := range words {
		if i > 0 || r.space || r.parted {
			r.gap()
		}
		r.mark(word)
	}
	r.space = strings.TrimRight(s, " \t\r\n\f") != s
}

// mark adds s as it is.
func (r *htmlReader) mark(s string) {
	r.text.WriteString(s)
	r.space, r.parted, r.lines = false, false, 0
}

// gap parts two words, unless something parts them already.
func (r *htmlReader) gap() {
	text := r.text.String()
	if text != "" && !strings.ContainsAny(text[len(text)-1:], " \n[") {
		r.text.WriteByte(' ')
	}
}

// newline makes the text end in at least n line ends, or parts two words inside a link.
func (r *htmlReader) newline(n int) {
	if n == 0 || r.text.Len() == 0 {
		return
	}
	if r.link != "" {
		r.parted = true
		return
	}
	for r.lines < min(n, 2) {
		r.text.WriteByte('\n')
		r.lines++
	}
	r.space = false
}
