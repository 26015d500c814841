package app

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

type versionCommand struct{}

// Run prints the version and what the binary was built from.
func (versionCommand) Run(a *App) error {
	_, err := fmt.Fprintf(a.Stdout, "holdfast %s (%s %s/%s)\n", a.Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// buildVersion is what the build says: the module's version, and the commit if it was built in a checkout.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "of unknown version"
	}
	return versionOf(info)
}

func versionOf(info *debug.BuildInfo) string {
	version := strings.Trim(info.Main.Version, "()")
	if version == "" {
		version = "devel"
	}
	of := map[string]string{}
	for _, s := range info.Settings {
		of[s.Key] = s.Value
	}
	commit := of["vcs.revision"]
	if commit == "" || strings.Contains(version, commit[:min(12, len(commit))]) {
		return version
	}
	version += " of " + commit[:min(12, len(commit))]
	if day, _, ok := strings.Cut(of["vcs.time"], "T"); ok {
		version += " from " + day
	}
	if of["vcs.modified"] == "true" {
		version += ", with changes"
	}
	return version
}
