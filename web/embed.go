// Package web is the window: the page that shows what happens. It is built from
// src by Vite; what was built is kept in dist, so that building the binary
// needs no Node.
package web

import (
	"embed"
	"io/fs"
)

//go:embed all:dist
var dist embed.FS

// Files are the built page: index.html, and what it loads.
func Files() fs.FS {
	files, err := fs.Sub(dist, "dist")
	if err != nil {
		panic(err) // "dist" is a valid path
	}
	return files
}
