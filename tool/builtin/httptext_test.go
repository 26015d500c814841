package builtin

import (
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

func read(t *testing.T, document string, limit int) page {
	t.Helper()
	base, err := url.Parse("https://example.com/guide/start?x=1")
	if err != nil {
		t.Fatal(err)
	}
	return readHTML(document, base, limit)
}

func TestHTMLBecomesWhatAReaderSees(t *testing.T) {
	got := read(t, `<!doctype html><html><head><title> A
		page </title><style>p{}</style><script>if (a<b) alert("<p>no</p>")</script></head>
		<body><!-- hidden --><nav><a href="/">Home</a> <a href="#top">Top</a> <a href="mailto:a@b">Mail</a></nav>
		<h1>Title &amp; <em>more</em></h1><p>First   line<br>second <b>bold</b>, end.</p><p>Next<noscript>no</noscript></p>
		<ul><li>one</li><li> two <a href="two.html?a=1&amp;b=2"><div>Link</div></a>!</li></ul>
		<table><tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>
		<pre>x  =  1
  y</pre><svg><text>no</text></svg>tail <a>plain</a></body></html>`, 10_000)
	want := `[Home](https://example.com/) Top Mail

# Title & more

First line
second bold, end.

Next

- one
- two [Link](https://example.com/guide/two.html?a=1&b=2)!

a b
c d

x  =  1
  y

tail plain`
	if got.text != want || got.title != "A page" || got.cut {
		t.Errorf("the page is %+v", got)
	}
}

func TestHTMLIsBoundedAndValid(t *testing.T) {
	for _, document := range []string{
		strings.Repeat("<p>é", 1000), strings.Repeat("<a href=a>x</a>", 1000), "<p title='" + strings.Repeat("x", 5000) + "'>text", strings.Repeat("<title>t</title>", 1000) + strings.Repeat("word ", 500),
	} {
		got := read(t, document, 500)
		if !got.cut || len(got.text) > 500 || !utf8.ValidString(got.text) || len(got.title) > 1000 {
			t.Errorf("%.30s gives %d bytes, cut %v, title %d", document, len(got.text), got.cut, len(got.title))
		}
	}
}

func FuzzAnyHTMLBecomesBoundedText(f *testing.F) {
	for _, seed := range []string{"<p>a", "<a href='//x'>y", "<script>", "<pre>\n a</pre></pre>", "<h1><li><a href=b><br>", "\x00<\xff>"} {
		f.Add(seed)
	}
	base, _ := url.Parse("https://example.com/")
	f.Fuzz(func(t *testing.T, document string) {
		if got := readHTML(document, base, 300); len(got.text) > 300 || len(got.title) > 1000 {
			t.Fatalf("%q gives %d bytes", document, len(got.text))
		}
	})
}
