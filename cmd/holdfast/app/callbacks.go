package app

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-run/holdfast/tool"
	"github.com/holdfast-run/holdfast/tool/callback"
)

// callbackKeyVariable has the key that callback URLs are signed with.
const callbackKeyVariable = "HOLDFAST_CALLBACK_KEY"

// callbacks are how services that answer later reach this server. It is filled
// in before the first call is made.
type callbacks struct {
	wanted bool // an agent has a tool whose service may answer later
	key    callback.Key
	base   string // of the URLs, without a final slash
}

// url is where the end of a call is posted.
func (c *callbacks) url(call tool.Call) string {
	return c.base + "/v1/callbacks/" + c.key.Token(callback.Call{Session: call.Session, Run: call.Run, ID: call.ID})
}

// open finds the key and the address. listens is the address that this process
// listens on, or empty.
func (c *callbacks) open(config Config, dir, listens string) error {
	var err error
	if c.key, err = callbackKey(config.Store.shared(), dir, c.wanted); err != nil {
		return err
	}
	c.base = strings.TrimRight(config.Server.PublicURL, "/")
	if c.base != "" || !c.wanted {
		return nil
	}
	host, _, err := net.SplitHostPort(listens)
	if addr, bad := netip.ParseAddr(host); err != nil || bad == nil && addr.IsUnspecified() {
		return errors.New("a tool is async: say with server.publicUrl in the configuration where its service reaches the server, such as https://agents.example.com")
	}
	c.base = "http://" + listens
	return nil
}

// callbackKey is the key of the variable, or else one that is kept in the data
// folder. Processes that share a store have no folder in common.
func callbackKey(shared bool, dir string, wanted bool) (callback.Key, error) {
	if text := os.Getenv(callbackKeyVariable); text != "" {
		key, err := callback.ParseKey(text)
		if err != nil {
			return nil, fmt.Errorf("the variable %s: %w", callbackKeyVariable, err)
		}
		return key, nil
	}
	if shared {
		if wanted {
			return nil, fmt.Errorf("a tool is async, and processes share the store: give each of them the same %s (openssl rand -hex 32 makes one)", callbackKeyVariable)
		}
		return nil, nil
	}
	path := filepath.Join(dir, "callback.key")
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		key, err := callback.ParseKey(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return key, nil
	case !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("read the callback key: %w", err)
	case !wanted:
		return nil, nil
	}
	key := make(callback.Key, callback.MinKey)
	rand.Read(key)
	if err := writeKey(path, hex.EncodeToString(key)+"\n"); err != nil {
		return nil, fmt.Errorf("keep the callback key: %w", err)
	}
	return key, nil
}

// writeKey makes a whole file or none, and durably: URLs that services hold die with it.
func writeKey(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "callback-*.tmp") // only its owner may read it
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
