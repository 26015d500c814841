import { lazy, type ReactElement, Suspense } from "react";

const load = () => import("./markdown.tsx");
const Markdown = lazy(load);

/** Begins to load what renders markdown, so that it is there before the first answer is. */
export function preloadMarkdown(): void {
  load().catch(() => {}); // it is tried again when it is needed
}

/** Text of a model, as markdown. Until that can be rendered, as it is. */
export function Prose({
  text,
  growing = false,
}: {
  readonly text: string;
  readonly growing?: boolean;
}): ReactElement {
  return (
    <Suspense fallback={<Plain text={text} />}>
      <Markdown text={text} growing={growing} />
    </Suspense>
  );
}

function Plain({ text }: { text: string }): ReactElement {
  return <div className="markdown plain-text">{text.slice(0, 20_000)}</div>;
}
