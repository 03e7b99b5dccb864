package regress

// helpers are the programs that the test binary is when it is called by their names.
var helpers = map[string]func() int{}
