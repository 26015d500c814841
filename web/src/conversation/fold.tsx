import { ChevronRight } from "lucide-react";
import { type ReactElement, type ReactNode, useState } from "react";

type Props = {
  readonly summary: ReactNode;
  readonly className?: string;
  readonly children: () => ReactNode;
};

/** Something that is folded away until somebody wants it; only then is it rendered. */
export function Fold({ summary, className = "", children }: Props): ReactElement {
  const [open, setOpen] = useState(false);
  return (
    <details className={`fold ${className}`} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <ChevronRight size={14} className="chevron" aria-hidden="true" />
        {summary}
      </summary>
      {open && <div className="fold-body">{children()}</div>}
    </details>
  );
}
