// Appended to the recipe for Go, above `Use it`. Answers cases: see tests/it/recipes.rs.

type Case struct {
	Name, Token string
	Order       *Order
	Now         float64
}

func answer(one Case, keys Keys) (refused any) {
	defer func() {
		if why := recover(); why != nil {
			refused = fmt.Sprint(why)
		}
	}()
	if one.Order == nil {
		signed(one.Token, keys)
	} else {
		verify(one.Token, *one.Order, keys, one.Now)
	}
	return nil
}

func main() {
	file, err := os.Open(os.Args[1])
	need(err == nil, err)
	var given struct {
		Keys  Keys
		Cases []Case
	}
	need(json.NewDecoder(file).Decode(&given) == nil, "no cases")
	answers := map[string]any{}
	for _, one := range given.Cases {
		answers[one.Name] = answer(one, given.Keys)
	}
	text, _ := json.Marshal(answers)
	fmt.Println(string(text))
}

// What only the rest of the recipe uses.
var _, _ = http.Get, time.Now
