package holdfast

// Principal is who asks. Every session belongs to a tenant and an owner; a
// principal sees only its own.
type Principal struct {
	Tenant string
	Owner  string
}

// Local is the principal of a runtime without authentication.
var Local = Principal{Tenant: "local", Owner: "local"}
