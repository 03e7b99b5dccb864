//go:build !latchtest

package enforce

// after is called when a step of a write path is done. Builds with the tag latchtest can be made to
// die there.
func after(string) {}
