import type { Json } from "@holdfast/client";
import { type ReactElement, useMemo, useState } from "react";
import { byteSize, prettyJson } from "../lib/words.ts";
import { Clamp } from "./clamp.tsx";

/** Text beyond this is cut before it reaches the page: even hidden, it costs. */
const most = 20_000;

/** A JSON value, indented. */
export function JsonView({
  value,
  height,
}: {
  readonly value: Json | undefined;
  readonly height?: number;
}): ReactElement {
  const text = useMemo(() => prettyJson(value), [value]);
  return <LongText text={text} className="json" {...(height && { height })} />;
}

type TextProps = { readonly text: string; readonly className: string; readonly height?: number };

/** Plain text of any length that does not freeze the page. */
export function LongText({ text, className, height = 240 }: TextProps): ReactElement {
  const [all, setAll] = useState(false);
  const cut = text.length > most && !all;
  return (
    <>
      <Clamp height={height}>
        <div className={className}>{cut ? text.slice(0, most) : text}</div>
      </Clamp>
      {cut && (
        <div className="clamp-foot">
          <button type="button" className="button quiet" onClick={() => setAll(true)}>
            Show the other {byteSize(text.length - most)}
          </button>
        </div>
      )}
    </>
  );
}
