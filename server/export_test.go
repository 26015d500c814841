package server

import "github.com/holdfast-run/holdfast/server/api"

// Statuses shows the table from codes to statuses to the tests.
var Statuses map[api.Code]int = statuses
