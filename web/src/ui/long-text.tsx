import { type ReactElement, useState } from "react";
import { byteSize } from "../lib/words.ts";
import { Clamp } from "./clamp.tsx";

/** What is longer than this many characters shows its beginning: even hidden, text costs. */
const most = 4_000;
/** All of a long text is shown in pieces of this many characters, of which those out of sight cost nothing. */
const piece = 8_000;

type Props = { readonly text: string; readonly className: string; readonly height?: number };

/** Plain text of any length that does not hold up the page. */
export function LongText({ text, className, height = 240 }: Props): ReactElement {
  const [open, setOpen] = useState(false);
  if (text.length <= most) {
    return (
      <Clamp height={height}>
        <div className={className}>{text}</div>
      </Clamp>
    );
  }
  return (
    <>
      {open ? (
        <div className={className}>
          {piecesOf(text).map((from) => (
            <div key={from} className="text-piece">
              {text.slice(from, from + piece)}
            </div>
          ))}
        </div>
      ) : (
        <div className={`${className} fading`} style={{ maxHeight: height }}>
          {text.slice(0, most)}
        </div>
      )}
      <div className="clamp-foot">
        <button type="button" className="button quiet" aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? "Show less" : `Show all (${byteSize(text.length)})`}
        </button>
      </div>
    </>
  );
}

function piecesOf(text: string): number[] {
  return Array.from({ length: Math.ceil(text.length / piece) }, (_, i) => i * piece);
}
