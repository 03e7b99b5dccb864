// Package near tells how far two names are apart, to find which known one a mistyped one is meant to be. How
// near is near enough is for who asks.
package near

// Word is the known word that a mistyped one is likely meant to be: of those with a mistake in each three
// letters at most, the nearest. Empty if none is that near.
func Word(word string, known []string) string {
	best, least := "", len(word)/3+1
	for _, k := range known {
		if d := Distance(word, k, 1); d < least {
			best, least = k, d
		}
	}
	return best
}

// Distance is how many bytes have to be put in, taken out or replaced to make one word the other. To swap two
// neighbours costs swap; 2 is no cheaper than to replace both.
func Distance(a, b string, swap int) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(last[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+swap)
			}
		}
	}
	return row[len(b)]
}
