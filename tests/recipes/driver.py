# Appended to the recipe for Python, above `Use it`. Answers cases: see tests/it/recipes.rs.
answers = {}
with open(sys.argv[1]) as file:
    given = json.load(file)
for one in given["cases"]:
    try:
        if "order" in one:
            verify(one["token"], one["order"], given["keys"], one["now"])
        else:
            signed(one["token"], given["keys"])
        answers[one["name"]] = None
    except Exception as refused:
        answers[one["name"]] = repr(refused)
print(json.dumps(answers))
