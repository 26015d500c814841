import type { Message, MessagePage } from "@holdfast/client";
import { useClient } from "@holdfast/react";
import { X } from "lucide-react";
import { type ReactElement, useEffect, useId, useState } from "react";
import { textOf } from "../lib/words.ts";
import { Dialog } from "../ui/dialog.tsx";
import { IconButton } from "../ui/icon-button.tsx";
import { useToasts } from "../ui/toast.tsx";
import { Parts } from "./parts.tsx";
import { Said } from "./said.tsx";
import { useSessionActions } from "./session-context.ts";

type Props = {
  readonly message: Message;
  readonly siblings: readonly string[];
  readonly busy: boolean;
  readonly onClose: () => void;
};

/** Two versions side by side, from where they part to where each ends. */
export default function Compare({ message, siblings, busy, onClose }: Props): ReactElement {
  const { mirror } = useSessionActions();
  const at = siblings.indexOf(message.id);
  const [left, setLeft] = useState(siblings[at === 0 ? 1 : at - 1] ?? message.id);
  const [right, setRight] = useState(message.id);
  const [first, second] = at === 0 ? [right, left] : [left, right];
  const before = mirror.getSnapshot().messages.find(({ id }) => id === message.parent);
  const column = (shown: string) => (
    <Column
      key={shown === left ? "left" : "right"}
      id={shown}
      other={shown === left ? right : left}
      siblings={siblings}
      current={message.id}
      busy={busy}
      onChoose={shown === left ? setLeft : setRight}
      onShown={onClose}
    />
  );
  return (
    <Dialog onClose={onClose} className="dialog wide compare" label="Compare versions">
      <header className="dialog-head">
        <h2>Compare versions</h2>
        {before && (
          <p className="compare-before truncate">after “{textOf(before).slice(0, 200) || "a file"}”</p>
        )}
        <IconButton label="Close" onClick={onClose}>
          <X size={18} />
        </IconButton>
      </header>
      <div className="compare-columns">
        {column(first)}
        {column(second)}
      </div>
    </Dialog>
  );
}

type ColumnProps = {
  readonly id: string;
  readonly other: string;
  readonly siblings: readonly string[];
  /** The version that the conversation shows. */
  readonly current: string;
  readonly busy: boolean;
  readonly onChoose: (id: string) => void;
  readonly onShown: () => void;
};

function Column({ id, other, siblings, current, busy, onChoose, onShown }: ColumnProps): ReactElement {
  const { mirror } = useSessionActions();
  const { act } = useToasts();
  const headId = useId();
  const name = (version: string) => `Version ${siblings.indexOf(version) + 1} of ${siblings.length}`;
  return (
    <section className="compare-column" aria-labelledby={headId}>
      <header className="compare-head">
        <h3 id={headId} className={siblings.length > 2 ? "sr-only" : ""}>
          {name(id)}
        </h3>
        {siblings.length > 2 && (
          <select
            className="select"
            aria-label="Which version"
            value={id}
            onChange={(event) => onChoose(event.target.value)}
          >
            {siblings.map((version) => (
              <option key={version} value={version} disabled={version === other}>
                {name(version)}
              </option>
            ))}
          </select>
        )}
        {id === current ? (
          <span className="badge accent">Shown</span>
        ) : (
          <button
            type="button"
            className="button"
            disabled={busy}
            title={busy ? "When the run has ended" : undefined}
            onClick={() => {
              act("change the branch", mirror.switchTo(id));
              onShown();
            }}
          >
            Show this one
          </button>
        )}
      </header>
      <section
        className="compare-body"
        aria-label={`${name(id)}: what was said`}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable with the keyboard.
        tabIndex={0}
      >
        <Branch id={id} />
      </section>
    </section>
  );
}

function Branch({ id }: { id: string }): ReactElement {
  const page = useBranch(id);
  if (page === undefined) return <p role="status">Loading…</p>;
  if (page === "failed") return <p role="alert">It could not be loaded. Close this and try again.</p>;
  return (
    <>
      {page.messages.map((message) =>
        message.role === "user" ? (
          <article key={message.id} className="user-turn" aria-label="You">
            <Said parts={message.parts} />
          </article>
        ) : (
          <article key={message.id} className="assistant-turn" aria-label="Assistant">
            <Parts message={message} />
            {message.status === "streaming" && <p className="run-line">It is still being written.</p>}
            {message.status === "interrupted" && (
              <p className="run-line">
                {message.reason === "failed" ? "It failed here." : "It was stopped here."}
              </p>
            )}
          </article>
        ),
      )}
      {page.hasMore && <p className="run-line">This version goes on. Show it to read the rest.</p>}
    </>
  );
}

/** The branch that leads through a message, from that one on, as it is when it is asked for. */
function useBranch(through: string): MessagePage | "failed" | undefined {
  const { mirror } = useSessionActions();
  const { api } = useClient();
  const [known, setKnown] = useState<{ through: string; page: MessagePage | "failed" }>();
  useEffect(() => {
    const stop = new AbortController();
    api.messages(mirror.id, { through, signal: stop.signal }).then(
      (page) => setKnown({ through, page }),
      () => !stop.signal.aborted && setKnown({ through, page: "failed" }),
    );
    return () => stop.abort();
  }, [api, mirror, through]);
  return known?.through === through ? known.page : undefined;
}
