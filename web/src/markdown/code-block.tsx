import { type ReactElement, type ReactNode, useEffect, useState } from "react";
import { Clamp } from "../ui/clamp.tsx";
import { CopyButton } from "../ui/copy-button.tsx";

/** Code beyond this many characters stays in one colour: it would hold up the page. */
const colourMost = 30_000;

type Props = { readonly code: string; readonly language: string; readonly growing: boolean };

/** A block of code: its language, a way to copy it, and colours once it is complete. */
export function CodeBlock({ code, language, growing }: Props): ReactElement {
  const coloured = useHighlighted(code, language, growing);
  return (
    <div className="code-block">
      <div className="code-head">
        <span>{language || "text"}</span>
        <CopyButton text={() => code} label="Copy the code" />
      </div>
      <Clamp height={480}>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable with the keyboard. */}
        <pre tabIndex={0}>
          <code>{coloured ?? code}</code>
        </pre>
      </Clamp>
    </div>
  );
}

function useHighlighted(code: string, language: string, growing: boolean): ReactNode {
  const [done, setDone] = useState<{ code: string; node: ReactNode }>();
  useEffect(() => {
    if (growing || !language || code.length > colourMost) return;
    let wanted = true;
    import("./highlight.ts").then(
      ({ highlight }) => wanted && setDone({ code, node: highlight(code, language.toLowerCase()) }),
      () => {}, // a page without colours still shows the code
    );
    return () => {
      wanted = false;
    };
  }, [code, language, growing]);
  return done?.code === code ? done.node : undefined;
}
