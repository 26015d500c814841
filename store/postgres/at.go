package postgres

import (
	"context"

	"github.com/holdfast-run/holdfast/store"
)

// At opens the store in the database at url with the defaults, for holdfast.Options.Store.
func At(url string) func(context.Context, store.Options) (store.Store, error) {
	return func(ctx context.Context, opts store.Options) (store.Store, error) {
		return Open(ctx, url, Options{Options: opts})
	}
}
