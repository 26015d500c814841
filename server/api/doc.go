// Package api is the HTTP API in Go: one struct for each request and answer of
// protocol/PROTOCOL.md. The server reads and writes them, its OpenAPI document
// is made from them, and Go clients use them as they are.
//
// What the API passes on unchanged is defined where it lives: [session.Run],
// [session.Message], [session.Approval], [holdfast.Snapshot] and their like.
package api
