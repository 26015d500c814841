import type { Message, Pending, Run, SessionView } from "@holdfast/client";
import { isTerminal } from "@holdfast/client";
import { ArrowDown, Bot, GitFork } from "lucide-react";
import { type ReactElement, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Virtualizer, type VirtualizerHandle } from "virtua";
import { useCompactions } from "../lib/context.ts";
import { Link } from "../ui/link.tsx";
import { useToasts } from "../ui/toast.tsx";
import { AssistantTurn } from "./assistant-turn.tsx";
import { Compacted } from "./compacted.tsx";
import { ResultTurn } from "./result-turn.tsx";
import { RunLine } from "./run-line.tsx";
import { useSessionActions } from "./session-context.ts";
import { useFollow } from "./use-follow.ts";
import { PendingTurn, UserTurn } from "./user-turn.tsx";

type Turn =
  | { readonly key: string; readonly message: Message }
  | { readonly key: string; readonly pending: Pending }
  /** A run that is about to say something. */
  | { readonly key: string; readonly run: Run };

type Props = {
  readonly view: SessionView;
  /** The message that the address names. */
  readonly linked: string | undefined;
  /** Grows with each message that the person sends: then the end is shown. */
  readonly sent: number;
};

/** So many turns from the first one, earlier ones are loaded. */
const ahead = 8;

/** The conversation itself. Only what can be seen is on the page, however long it is. */
export function Thread({ view, linked, sent }: Props): ReactElement {
  const { mirror } = useSessionActions();
  const scroller = useRef<HTMLDivElement>(null);
  const list = useRef<VirtualizerHandle>(null);
  const { following, follow, leave, resized } = useFollow(scroller);
  const turns = useTurns(view);
  const shift = usePrepended(turns[0]?.key, turns);
  const { hasMore, older } = view;
  // A run compacts before a model call.
  const compaction = useCompactions(
    view.id,
    `${view.head} ${view.run?.id} ${view.run?.currentStep} ${view.run?.attempt}`,
  ).find(({ upTo }) => upTo);

  const loadOlder = useCallback(() => {
    if (hasMore && older.name === "idle") void mirror.loadOlder();
  }, [mirror, hasMore, older.name]);

  const look = useCallback(() => {
    const first = list.current?.findItemIndex(list.current.scrollOffset) ?? ahead;
    if (first < ahead) loadOlder();
  }, [loadOlder]);

  // A window that does not fill the page cannot be scrolled.
  useEffect(look);

  useEffect(() => {
    if (sent > 0) follow();
  }, [sent, follow]);

  const elsewhere = useLinked(view, turns, linked, (index) => {
    leave();
    list.current?.scrollToIndex(index, { align: "start", offset: -16 });
  });

  return (
    <div className="thread">
      <div
        ref={scroller}
        className="scroller"
        role="log"
        aria-label="Conversation"
        aria-live="off"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable with the keyboard.
        tabIndex={0}
      >
        {elsewhere ? (
          <Elsewhere message={elsewhere} />
        ) : (
          <Older view={view} onLoad={() => void mirror.loadOlder()} />
        )}
        <Virtualizer
          ref={list}
          scrollRef={scroller}
          data={turns}
          shift={shift}
          bufferSize={600}
          onScroll={look}
          onResize={resized}
        >
          {(turn, index) => (
            <div
              key={turn.key}
              className={`turn ${index === 0 ? "first" : ""} ${index === turns.length - 1 ? "last" : ""} ${linked === turn.key ? "linked" : ""}`}
            >
              <div className="column">
                {index === 0 && <Origin view={view} />}
                <TurnView turn={turn} view={view} />
                {compaction && compaction.upTo?.message === turn.key && <Compacted compaction={compaction} />}
                {index === turns.length - 1 && <Below view={view} />}
              </div>
            </div>
          )}
        </Virtualizer>
      </div>
      {!following && turns.length > 0 && (
        <button type="button" className="to-latest" onClick={follow}>
          <ArrowDown size={16} aria-hidden="true" />
          Jump to latest
        </button>
      )}
    </div>
  );
}

function TurnView({ turn, view }: { turn: Turn; view: SessionView }): ReactElement {
  if ("pending" in turn) return <PendingTurn pending={turn.pending} />;
  if ("run" in turn) {
    return (
      <div className="assistant-turn">
        <RunLine run={turn.run} message={undefined} gestures={view.gestures} busy={view.run !== undefined} />
      </div>
    );
  }
  const { message } = turn;
  const busy = view.run !== undefined;
  if (message.background) return <ResultTurn message={message} about={message.background} />;
  if (message.role === "user") return <UserTurn message={message} busy={busy} />;
  const run = view.runs.find(({ id }) => id === message.run);
  return (
    <AssistantTurn
      message={message}
      run={run?.message === message.id ? run : undefined}
      approvals={view.approvals}
      gestures={view.gestures}
      busy={busy}
    />
  );
}

/** What is shown: the messages, the run that has said nothing yet, and what is on its way to the server. */
function useTurns(view: SessionView): readonly Turn[] {
  const { messages, run, pending, inbox } = view;
  return useMemo(() => {
    const turns: Turn[] = messages.map((message) => ({ key: message.id, message }));
    const said = run && messages.some(({ id }) => id === run.message);
    const waits = run && inbox.some((item) => item.run === run.id);
    if (run && !said && !waits && !isTerminal(run)) turns.push({ key: run.message, run });
    for (const item of pending) turns.push({ key: item.id, pending: item });
    return turns;
  }, [messages, run, pending, inbox]);
}

/** Whether turns came before those that were shown: then the place is kept from the end. */
function usePrepended(first: string | undefined, turns: readonly Turn[]): boolean {
  const [before, setBefore] = useState(first);
  const prepended = before !== undefined && before !== first && turns.some(({ key }) => key === before);
  useLayoutEffect(() => setBefore(first), [first]);
  return prepended;
}

/**
 * Finds the message that the address names, however far back it is, and goes
 * there once. Gives its id when it is not on the branch that is shown.
 */
function useLinked(
  view: SessionView,
  turns: readonly Turn[],
  linked: string | undefined,
  go: (index: number) => void,
): string | undefined {
  const { mirror } = useSessionActions();
  const [gone, setGone] = useState<string>();
  const index = linked ? turns.findIndex(({ key }) => key === linked) : -1;
  const { hasMore, older, status } = view;
  useEffect(() => {
    if (!linked || gone === linked || status.name === "loading" || turns.length === 0) return;
    if (index >= 0) {
      go(index);
      setGone(linked);
    } else if (hasMore && older.name === "idle") {
      void mirror.loadOlder();
    } else if (!hasMore) {
      setGone(linked);
    }
  });
  return linked !== undefined && gone === linked && index < 0 ? linked : undefined;
}

/** The branch is the conversation's, not the page's: to open a link does not change it for everybody. */
function Elsewhere({ message }: { message: string }): ReactElement {
  const { mirror } = useSessionActions();
  const { act } = useToasts();
  return (
    <div className="older">
      <div className="elsewhere">
        The message that the link names is not on this branch.
        <button
          type="button"
          className="button link"
          onClick={() => act("show that branch", mirror.switchTo(message))}
        >
          Show its branch
        </button>
      </div>
    </div>
  );
}

/** Where a fork is from, or whose work a subagent's conversation is, before its first message. */
function Origin({ view }: { view: SessionView }): ReactElement | null {
  const { forkedFrom, parent } = view.session ?? {};
  const from = forkedFrom ?? (parent && { session: parent });
  if (!from || view.hasMore) return null;
  return (
    <p className="run-line origin">
      {forkedFrom ? <GitFork size={16} aria-hidden="true" /> : <Bot size={16} aria-hidden="true" />}
      <span>
        {forkedFrom ? "Forked from " : "A subagent’s work for "}
        <Link to={{ name: "session", ...from }}>another conversation</Link>
      </span>
    </p>
  );
}

/** What follows the end on other branches. */
function Below({ view }: { view: SessionView }): ReactElement | null {
  const { mirror } = useSessionActions();
  const { act } = useToasts();
  const others = Object.values(view.below ?? {}).flat();
  const last = others.at(-1);
  if (!last) return null;
  return (
    <p className="run-line">
      {others.length === 1 ? "One message follows" : `${others.length} messages follow`} here on another
      branch.
      <button
        type="button"
        className="button link"
        disabled={view.run !== undefined}
        onClick={() => act("show that branch", mirror.switchTo(last))}
      >
        Show it
      </button>
    </p>
  );
}

function Older({ view, onLoad }: { view: SessionView; onLoad: () => void }): ReactElement | null {
  const { older } = view;
  if (older.name === "idle") return null;
  return (
    <div className="older">
      {older.name === "failed" ? (
        <button type="button" className="button" onClick={onLoad}>
          Earlier messages could not be loaded. Try again
        </button>
      ) : (
        <span>Loading earlier messages…</span>
      )}
    </div>
  );
}
