// Appended to the recipe for Node, above `Use it`. Answers cases: see tests/it/recipes.rs.
const answers = {};
const { keys, cases } = JSON.parse(readFileSync(process.argv[2], 'utf8'));
for (const one of cases) {
  try {
    await (one.order === undefined ? signed(one.token, keys) : verify(one.token, one.order, keys, one.now));
    answers[one.name] = null;
  } catch (error) {
    answers[one.name] = error.message;
  }
}
console.log(JSON.stringify(answers));
