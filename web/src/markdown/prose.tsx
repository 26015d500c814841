import { type ComponentType, lazy, type ReactElement, Suspense, useState } from "react";
import type { MarkdownProps } from "./markdown.tsx";

const load = () => import("./markdown.tsx");
const Later = lazy(load);
/** What is there already is not waited for: React shows what was waited for a third of a second later. */
let Now: ComponentType<MarkdownProps> | undefined;

/** Begins to load what renders markdown, so that it is there before the first answer is. */
export function preloadMarkdown(): void {
  load().then(
    (module) => {
      Now = module.default;
    },
    () => {}, // it is tried again when it is needed
  );
}

/** Text of a model, as markdown. Until that can be rendered, as it is. */
export function Prose({
  text,
  growing = false,
}: {
  readonly text: string;
  readonly growing?: boolean;
}): ReactElement {
  const [Markdown] = useState(() => Now ?? Later);
  return (
    <Suspense fallback={<Plain text={text} />}>
      <Markdown text={text} growing={growing} />
    </Suspense>
  );
}

function Plain({ text }: { text: string }): ReactElement {
  return <div className="markdown plain-text">{text.slice(0, 20_000)}</div>;
}
