package runner

import "github.com/latch-cni/latch/integration/scenario"

// Explain asks the compiler about both ends of a cell.
func Explain(st scenario.State, cell scenario.Cell) string { return "" }
