package tool_test

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

type refund struct {
	Order  int64  `json:"order" jsonschema:"number of the order"`
	Amount int64  `json:"amount" jsonschema:"in cents"`
	Note   string `json:"note,omitempty"`
}

// A tool from a Go function: repeating a call is harmless, since the payment
// service knows its idempotency key, and a person agrees to large sums.
func ExampleNew() {
	large, err := tool.When([]byte(`{"properties": {"amount": {"minimum": 10000}}, "required": ["amount"]}`))
	if err != nil {
		panic(err)
	}
	pay := tool.New("refund", "Refunds an order.", func(_ context.Context, in refund, call tool.Call) (string, error) {
		if in.Order == 0 {
			return "", tool.Errorf("not_found", "There is no order %d.", in.Order)
		}
		return fmt.Sprintf("refunded %d.%02d for order %d under %s", in.Amount/100, in.Amount%100, in.Order, call.IdempotencyKey), nil
	}, tool.WithEffects(session.Idempotent), tool.WithApproval(large))

	for _, text := range []string{`{"order": 2512292042121000001, "amount": 995}`, `{"order": 7, "amount": 25000}`, `{"order": 7, "amo`} {
		arguments, err := tool.Validate(pay.Spec(), []byte(text))
		if err != nil {
			fmt.Println(err)
			continue
		}
		if pay.Spec().Approval.Needs(pay.Spec(), arguments) {
			fmt.Println("a person is asked about", string(arguments))
			continue
		}
		result, err := tool.Run(context.Background(), pay, tool.Call{Arguments: arguments, IdempotencyKey: "run_1.call_1"})
		fmt.Println(string(result.Value), err)
	}
	// Output:
	// "refunded 9.95 for order 2512292042121000001 under run_1.call_1" <nil>
	// a person is asked about {"order":7,"amount":25000}
	// The arguments of refund cannot be used: the JSON text is cut off before its end. The tool was not run. Call it again with corrected arguments.
}
