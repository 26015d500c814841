package sqlite

import (
	"context"

	"github.com/holdfast-run/holdfast/store"
)

// At opens the store in dir with the defaults, for holdfast.Options.Store.
func At(dir string) func(context.Context, store.Options) (store.Store, error) {
	return func(ctx context.Context, opts store.Options) (store.Store, error) {
		return Open(ctx, dir, Options{Options: opts})
	}
}
