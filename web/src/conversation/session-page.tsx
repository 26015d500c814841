import type { SessionView } from "@holdfast/client";
import { useClient, useMirror, useSession } from "@holdfast/react";
import {
  type ReactElement,
  type ReactNode,
  type RefObject,
  useCallback,
  useEffect,
  useMemo,
  useRef,
  useState,
} from "react";
import { navigate } from "../lib/route.ts";
import { Announcer } from "./announcer.tsx";
import { Aside } from "./aside.tsx";
import { Composer } from "./composer.tsx";
import { Queue } from "./queue.tsx";
import { isStopping } from "./run-line.tsx";
import { type SessionActions, SessionContext } from "./session-context.ts";
import { Thread } from "./thread.tsx";
import { Welcome } from "./welcome.tsx";

type Props = {
  readonly id: string;
  /** Whether the session was made here and has not been sent to. */
  readonly fresh: boolean;
  readonly linked: string | undefined;
  readonly composer: RefObject<HTMLTextAreaElement | null>;
  readonly onInspect: (run: string) => void;
};

const all = (view: SessionView): SessionView => view;

/** One session: what was said, what happens, and where to say more. */
export function SessionPage({ id, fresh, linked, composer, onInspect }: Props): ReactElement {
  const view = useSession(id, all);
  const mirror = useMirror(id);
  const { drafts } = useClient();
  const [sent, setSent] = useState(0);
  const draftKey = fresh ? "new" : id;
  useSeen(view);

  const actions = useMemo<SessionActions>(
    () => ({
      mirror,
      inspect: onInspect,
      compose(text) {
        drafts.set(draftKey, text);
        composer.current?.focus();
      },
    }),
    [mirror, onInspect, drafts, draftKey, composer],
  );

  const onSent = useCallback(() => {
    setSent((n) => n + 1);
    composer.current?.focus();
    if (fresh) navigate({ name: "session", session: id }, true);
  }, [fresh, id, composer]);

  const stopping = view.run !== undefined && isStopping(view.run, view.gestures);
  const isThere = view.status.name !== "missing" && view.status.name !== "deleted";

  return (
    <SessionContext value={actions}>
      <div className="conversation">
        <Body view={view} linked={linked} sent={sent} onSent={onSent} />
        {isThere && (
          <div className="composer-area">
            <div className="column">
              <Aside view={view} />
              <Queue items={view.inbox} gestures={view.gestures} />
              <Composer
                draftKey={draftKey}
                run={view.run}
                stopping={stopping}
                fresh={view.messages.length === 0}
                inputRef={composer}
                onSent={onSent}
              />
            </div>
          </div>
        )}
      </div>
      <Announcer view={view} />
    </SessionContext>
  );
}

type BodyProps = {
  readonly view: SessionView;
  readonly linked: string | undefined;
  readonly sent: number;
  readonly onSent: () => void;
};

function Body({ view, linked, sent, onSent }: BodyProps): ReactElement {
  const mirror = useMirror(view.id);
  switch (view.status.name) {
    case "missing":
      return (
        <PageState title="There is no such conversation">
          It was deleted, or it is somebody else’s. The address may also be mistyped.
        </PageState>
      );
    case "deleted":
      return <PageState title="This conversation was deleted">Whoever deleted it did so for good.</PageState>;
    case "loading":
      return <Loading />;
    default:
      if (view.messages.length > 0 || view.pending.length > 0 || view.inbox.length > 0) {
        return <Thread view={view} linked={linked} sent={sent} />;
      }
      return (
        <Welcome
          onChoose={(text) => {
            mirror.send(text);
            onSent();
          }}
        />
      );
  }
}

function PageState({ title, children }: { title: string; children: ReactNode }): ReactElement {
  return (
    <div className="page-state">
      <h2>{title}</h2>
      <p>{children}</p>
      <button type="button" className="button primary" onClick={() => navigate({ name: "new" })}>
        New conversation
      </button>
    </div>
  );
}

function Loading(): ReactElement {
  return (
    <div className="scroller">
      <div className="column loading-turns" role="status" aria-label="Loading the conversation">
        <div className="skeleton said" />
        {[92, 84, 96, 40].map((width) => (
          <div key={width} className="skeleton" style={{ width: `${width}%` }} />
        ))}
      </div>
    </div>
  );
}

/** Marks as read what is shown to somebody. */
function useSeen(view: SessionView): void {
  const { sessions } = useClient();
  const { id } = view;
  const seq = view.session?.seq ?? 0;
  const seen = useRef(0);
  useEffect(() => {
    const mark = () => {
      if (document.visibilityState !== "visible" || seq <= seen.current) return;
      seen.current = seq;
      sessions.markRead(id, seq);
    };
    mark();
    document.addEventListener("visibilitychange", mark);
    return () => document.removeEventListener("visibilitychange", mark);
  }, [sessions, id, seq]);
}
