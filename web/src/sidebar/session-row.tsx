import type { SessionItem } from "@holdfast/client";
import { memo, type ReactElement } from "react";
import { shortTime } from "../lib/words.ts";
import { Link } from "../ui/link.tsx";
import { SessionMenu } from "./session-menu.tsx";

type Props = { readonly item: SessionItem; readonly current: boolean; readonly now: number };

/** A session in the list: its title, and what it does at this moment. */
export const SessionRow = memo(function SessionRow({ item, current, now }: Props): ReactElement {
  const unread = item.unread && !current;
  return (
    <div className={`session-row ${current ? "current" : ""} ${unread ? "unread" : ""}`}>
      <Link
        className="session-link"
        to={{ name: "session", session: item.id }}
        aria-current={current ? "page" : undefined}
      >
        <span className="session-title truncate">{item.title || "Untitled"}</span>
        <span className="session-mark">
          <SessionMark item={item} unread={unread} now={now} />
        </span>
      </Link>
      <SessionMenu session={item.id} title={item.title} small />
    </div>
  );
});

function SessionMark({
  item,
  unread,
  now,
}: {
  item: SessionItem;
  unread: boolean;
  now: number;
}): ReactElement {
  if (item.approvals > 0) return <span className="badge warn">Asks you</span>;
  switch (item.status) {
    case "running":
      return <Dot kind="running" words="Running" />;
    case "waiting":
      return <Dot kind="waiting" words="Waiting" />;
    case "queued":
      return <Dot kind="" words="Queued" />;
    default:
      return unread ? <Dot kind="good" words="Unread" /> : <span>{shortTime(item.updatedAt, now)}</span>;
  }
}

function Dot({ kind, words }: { kind: string; words: string }): ReactElement {
  return (
    <>
      <span className={`dot ${kind}`} title={words} />
      <span className="sr-only">{words}</span>
    </>
  );
}
