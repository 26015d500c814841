import type { Approval } from "@holdfast/client";
import { useApprovals, useClient, useSessions } from "@holdfast/react";
import { ShieldCheck } from "lucide-react";
import { type ReactElement, useEffect, useState } from "react";
import { ApprovalForm } from "../conversation/approval-form.tsx";
import { useNow } from "../lib/clock.ts";
import { shortTime } from "../lib/words.ts";
import { Link } from "../ui/link.tsx";

/** What waits for a person, over all sessions: who has waited longest comes first. */
export function ApprovalsPage(): ReactElement {
  const { items, loaded, failure, deciding, decide } = useApprovals();
  const now = useNow(60);
  if (!loaded) {
    return (
      <div className="page-state" role="status">
        {failure ? "The approvals cannot be loaded now. They are asked for again." : "Loading…"}
      </div>
    );
  }
  if (items.length === 0) {
    return (
      <div className="page-state">
        <ShieldCheck size={32} aria-hidden="true" />
        <h2>Nothing waits for you</h2>
        <p>
          When a run wants to do something that needs your word, it waits here until you decide: for days, if
          need be.
        </p>
      </div>
    );
  }
  return (
    <div className="approvals-page">
      <div className="column">
        {items.map((approval) => (
          <ApprovalForm
            key={approval.id}
            standing
            approval={approval}
            deciding={deciding.includes(approval.id) ? "approve" : undefined}
            decide={decide}
          >
            <div className="from">
              <SessionName approval={approval} />
              <span className="muted">asked {shortTime(approval.requestedAt, now)}</span>
            </div>
          </ApprovalForm>
        ))}
      </div>
    </div>
  );
}

function SessionName({ approval }: { approval: Approval }): ReactElement {
  const { session, message } = approval;
  const listed = useSessions((view) => view.items.find(({ id }) => id === session)?.title);
  const { api } = useClient();
  const [title, setTitle] = useState<string>();
  useEffect(() => {
    if (listed !== undefined) return;
    const stop = new AbortController();
    api.snapshot(session, { window: 1, signal: stop.signal }).then(
      (snapshot) => setTitle(snapshot.session.title),
      () => {}, // the link leads there without a name
    );
    return () => stop.abort();
  }, [api, session, listed]);
  return (
    <Link className="truncate" to={{ name: "session", session, message }}>
      {listed || title || "Untitled"}
    </Link>
  );
}
