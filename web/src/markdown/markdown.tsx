import { ImageOff } from "lucide-react";
import { createContext, memo, type ReactElement, useContext, useDeferredValue, useState } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import { byteSize } from "../lib/words.ts";
import { LongText } from "../ui/long-text.tsx";
import { Splitter } from "./blocks.ts";
import { CodeBlock } from "./code-block.tsx";

/** Whether the block is the last of a text that is being written. */
const Growing = createContext(false);

/** Of a text that is too long for markdown, and grows, only the end is shown. */
const tailMost = 6_000;

const plugins = [remarkGfm];

const components: Components = {
  a: ({ node: _, href, children, ...rest }) => {
    const inside = href?.startsWith("#");
    return (
      <a href={href} {...rest} {...(!inside && { target: "_blank", rel: "noopener noreferrer nofollow" })}>
        {children}
      </a>
    );
  },
  // A picture from elsewhere would tell that it was looked at, and may be made to tell more.
  img: ({ src, alt }) => {
    const words = alt || "picture";
    if (!src || typeof src !== "string") return <span className="muted">[{words}]</span>;
    return (
      <a className="image-link" href={src} target="_blank" rel="noopener noreferrer nofollow">
        <ImageOff size={14} aria-hidden="true" />
        {words} ({hostOf(src)})
      </a>
    );
  },
  table: ({ node: _, ...props }) => (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable with the keyboard.
    <section className="table-scroll" tabIndex={0} aria-label="Table">
      <table {...props} />
    </section>
  ),
  pre: ({ node }) => {
    const code = node?.children[0];
    if (code?.type !== "element") return null;
    const text = code.children[0];
    const classes = code.properties.className;
    const language = Array.isArray(classes) ? String(classes[0] ?? "").replace("language-", "") : "";
    return (
      <GrowingCode code={text?.type === "text" ? text.value.replace(/\n$/, "") : ""} language={language} />
    );
  },
};

function GrowingCode(props: { code: string; language: string }): ReactElement {
  return <CodeBlock {...props} growing={useContext(Growing)} />;
}

function hostOf(url: string): string {
  try {
    return new URL(url, window.location.href).host;
  } catch {
    return "elsewhere";
  }
}

export type MarkdownProps = { readonly text: string; readonly growing: boolean };

/** A block beyond this many characters is shown as it is: reading it would hold up the page. */
const blockMost = 16_000;
/** So much of a long text is shown at once; the rest comes piece by piece, while the page stays quick. */
const atOnce = 8_000;

/** Markdown as it is written: each block is rendered once, but for the last. */
export default function Markdown({ text, growing }: MarkdownProps): ReactElement {
  const [splitter] = useState(() => new Splitter());
  const shown = useDeferredValue(text, text.slice(0, atOnce));
  const { blocks, definitions, rest } = splitter.split(shown);
  return (
    <div className="markdown">
      {blocks.map((block, i) => (
        <BlockView
          // biome-ignore lint/suspicious/noArrayIndexKey: a block keeps its place while the text grows.
          key={i}
          source={block.source}
          code={block.code?.text}
          language={block.code?.language}
          definitions={refers.test(block.source) ? definitions : ""}
          growing={growing && i === blocks.length - 1 && !rest}
        />
      ))}
      {rest && <Rest text={rest} growing={growing} />}
    </div>
  );
}

const refers = /\[[^\]]+\]/;
const heading = /^ {0,3}#{1,6}\s/;

type BlockProps = {
  readonly source: string;
  readonly code: string | undefined;
  readonly language: string | undefined;
  readonly definitions: string;
  readonly growing: boolean;
};

const BlockView = memo(function BlockView(props: BlockProps): ReactElement {
  const { source, code, language = "", definitions, growing } = props;
  if (code !== undefined) {
    return (
      <div className="md-block">
        <CodeBlock code={code} language={language} growing={growing} />
      </div>
    );
  }
  if (source.length > blockMost) return <Rest text={source} growing={growing} />;
  return (
    <div className={heading.test(source) ? "md-block heading" : "md-block"}>
      <Growing value={growing}>
        <ReactMarkdown remarkPlugins={plugins} components={components}>
          {definitions ? `${source}\n\n${definitions}` : source}
        </ReactMarkdown>
      </Growing>
    </div>
  );
});

function Rest({ text, growing }: MarkdownProps): ReactElement {
  if (!growing) return <LongText text={text} className="plain-text" height={640} />;
  const hidden = text.length - tailMost;
  return (
    <>
      {hidden > 0 && <p className="muted">… {byteSize(hidden)} more, shown when the answer is complete …</p>}
      <div className="plain-text">{text.slice(-tailMost)}</div>
    </>
  );
}
