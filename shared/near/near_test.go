package near

import "testing"

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b             string
		cheap, expensive int // with a swap for 1, and for 2
	}{
		{"", "", 0, 0},
		{"", "abc", 3, 3},
		{"port", "port", 0, 0},
		{"port", "ports", 1, 1},
		{"lables", "labels", 1, 2},
		{"cdir", "cidr", 1, 2},
		{"ingres", "ingress", 1, 1},
		{"Node", "Pod", 2, 2},
		{"kitten", "sitting", 3, 3},
		{"ab", "ba", 1, 2},
	} {
		for swap, want := range map[int]int{1: tt.cheap, 2: tt.expensive} {
			if got, back := Distance(tt.a, tt.b, swap), Distance(tt.b, tt.a, swap); got != want || back != want {
				t.Errorf("%q, %q, swap %d: %d and %d, want %d", tt.a, tt.b, swap, got, back, want)
			}
		}
	}
}

func TestWord(t *testing.T) {
	known := []string{"install", "uninstall", "ab"}
	for word, want := range map[string]string{"instal": "install", "unistall": "uninstall", "install": "install", "run": "", "ac": "", "": ""} {
		if got := Word(word, known); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
