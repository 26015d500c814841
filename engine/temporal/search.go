package temporal

import (
	"context"
	"errors"
	"log/slog"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// The search attributes by which runs are found in Temporal.
var (
	sessionKey = temporal.NewSearchAttributeKeyKeyword("HoldfastSession")
	runKey     = temporal.NewSearchAttributeKeyKeyword("HoldfastRun")
	statusKey  = temporal.NewSearchAttributeKeyKeyword("HoldfastStatus") // running or waiting
)

// describeRuns makes the search attributes known to the namespace. Where that is
// not allowed, and nobody has made them, runs go without.
func (e *Engine) describeRuns(ctx context.Context) {
	add := &operatorservice.AddSearchAttributesRequest{
		Namespace: e.opts.Namespace,
		SearchAttributes: map[string]enums.IndexedValueType{
			sessionKey.GetName(): enums.INDEXED_VALUE_TYPE_KEYWORD,
			runKey.GetName():     enums.INDEXED_VALUE_TYPE_KEYWORD,
			statusKey.GetName():  enums.INDEXED_VALUE_TYPE_KEYWORD,
		},
	}
	_, err := e.opts.Client.OperatorService().AddSearchAttributes(ctx, add)
	known := (*serviceerror.AlreadyExists)(nil)
	if err != nil && !errors.As(err, &known) {
		e.Log().Info("runs have no search attributes in Temporal", slog.Any("why", err))
		return
	}
	e.bell.described.Store(true)
}

func describe(ctx workflow.Context, in *input, status string) {
	if in.Described {
		// An error says that the attribute is not known any more: the run matters, not how it is found.
		_ = workflow.UpsertTypedSearchAttributes(ctx, statusKey.ValueSet(status))
	}
}
