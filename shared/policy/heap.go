package policy

// heap is a binary heap of the lowest number first. container/heap would box every element.
type heap []int32

func (h *heap) push(v int32) {
	s := append(*h, v)
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if s[parent] <= s[i] {
			break
		}
		s[parent], s[i] = s[i], s[parent]
		i = parent
	}
	*h = s
}

func (h *heap) pop() int32 {
	s := *h
	top, n := s[0], len(s)-1
	s[0] = s[n]
	s = s[:n]
	for i := 0; ; {
		least := 2*i + 1
		if least >= n {
			break
		}
		if right := least + 1; right < n && s[right] < s[least] {
			least = right
		}
		if s[i] <= s[least] {
			break
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
	*h = s
	return top
}
